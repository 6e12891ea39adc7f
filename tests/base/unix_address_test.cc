// Addresses of Unix sockets at the edges of what fits.
#include "base/unix_address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "base/fd.h"

namespace regroup::base {
namespace {

constexpr std::size_t kLongest = sizeof sockaddr_un::sun_path - 1;

TEST(UnixAddress, APathEndsWithAZeroByte) {
  const auto address = unix_address(std::string(kLongest, 'a'));
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(std::strlen(address->bytes.sun_path), kLongest);
  const auto longer = unix_address(std::string(kLongest + 1, 'a'));
  EXPECT_EQ(longer.code(), Code::kInvalidArgument);
  EXPECT_NE(longer.status().message().find("longer than the 107 bytes"), std::string::npos);
}

TEST(UnixAddress, AnAbstractNameIsTakenOnceAndIsNotItsPrefix) {
  const std::string name = "regroup-test-" + std::to_string(::getpid());
  const auto bind_to = [](const std::string& at) {
    const auto address = abstract_address(at);
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ::bind(socket.get(), address->get(), address->size) == 0 ? std::move(socket) : Fd();
  };
  const Fd first = bind_to(name);
  EXPECT_TRUE(first.valid());
  EXPECT_FALSE(bind_to(name).valid());
  EXPECT_TRUE(bind_to(name + "0").valid());
  EXPECT_EQ(abstract_address(std::string(kLongest + 1, 'a')).code(), Code::kInvalidArgument);
  EXPECT_TRUE(abstract_address(std::string(kLongest, 'a')).ok());
}

}  // namespace
}  // namespace regroup::base
