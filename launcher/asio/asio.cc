// What Boost.Asio has of code that is no template.
#include <boost/asio/impl/src.hpp>
