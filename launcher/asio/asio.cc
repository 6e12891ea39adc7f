// The code of Boost.Asio that is not in templates, compiled once.
#include <boost/asio/impl/src.hpp>
