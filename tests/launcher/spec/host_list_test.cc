// The grammar of Slurm's and Flux's host lists, and what is refused.
#include "launcher/spec/host_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace regroup::spec {
namespace {

TEST(HostList, ExpandsBracketsAsSlurmDoes) {
  constexpr std::pair<const char*, const char*> kRows[] = {
      {"", ""},
      {"a", "a"},
      {"a,b", "a b"},
      {"gpu[08-10]", "gpu08 gpu09 gpu10"},
      {"gpu[2-4,012],bar", "gpu2 gpu3 gpu4 gpu012 bar"},
      {"n[1,3-4]x,m", "n1x n3x n4x m"},
      {"r[0-1]n[0-1]", "r0n0 r0n1 r1n0 r1n1"},
      // Not the order of an odometer: Slurm 22.05.
      {"a[1-2]b[1-2]c[1-2]", "a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1 a1b2c2 a2b2c1 a2b2c2"},
      {"a[1-2]b[1-2]c[1-2]d[8,9]",
       "a1b1c1d8 a1b1c1d9 a2b1c1d8 a2b1c1d9 a1b2c1d8 a1b2c1d9 a2b2c1d8 a2b2c1d9 "
       "a1b1c2d8 a1b1c2d9 a2b1c2d8 a2b1c2d9 a1b2c2d8 a1b2c2d9 a2b2c2d8 a2b2c2d9"},
      {"n[098-101]", "n098 n099 n100 n101"},
      {"a.b-c.d", "a.b-c.d"},
  };
  for (const auto& [text, names] : kRows) {
    const auto expanded = expand_host_list(text);
    ASSERT_TRUE(expanded.ok()) << text << ": " << expanded.status().message();
    EXPECT_EQ(fmt::format("{}", fmt::join(*expanded, " ")), names);
  }
}

TEST(HostList, NamesTheError) {
  constexpr std::pair<const char*, const char*> kRows[] = {
      {"n[3-1]", "'3-1': expected an ascending range"},
      {"n[1-2", "'n[1-2': unbalanced bracket"},
      {"n1-2]", "'n1-2]': unbalanced bracket"},
      {"n[[1]]", "'n[[1]]': unbalanced bracket"},
      {"n[]", "'': empty bracket"},
      {"n[a]", "'a': expected a number or a range of numbers"},
      {"n[-1]", "'-1': expected a number or a range of numbers"},
      {"n[1-]", "'1-': expected a number or a range of numbers"},
      {"a,,b", "'a,,b': expected a host name between commas"},
      {"a,", "'a,': expected a host name between commas"},
      {",a", "',a': expected a host name between commas"},
      {"n[0-999999999]", "'n[0-999999999]': more than 200000 names"},
      {"n[0-9999]m[0-9999]", "'n[0-9999]m[0-9999]': more than 200000 names"},
      {"n[0-99999999999999999999]",
       "'0-99999999999999999999': expected a number or a range of numbers"},
      {"n[0][0][0][0][0][0][0][0][0]", "'n[0][0][0][0][0][0][0][0][0]': too many brackets"},
      {"n[1\n2]", "'1?2': expected a number or a range of numbers"},
  };
  for (const auto& [text, why] : kRows) {
    const auto expanded = expand_host_list(text);
    ASSERT_FALSE(expanded.ok()) << text;
    EXPECT_EQ(expanded.status().message(), why);
  }
}

TEST(HostList, CountsHostsBeforeItExpands) {
  std::string many;
  for (int i = 0; i < 300; ++i) many += "n[0-999],";
  many += "last";
  EXPECT_FALSE(expand_host_list(many).ok());
  EXPECT_EQ(expand_host_list("n[0-199999]")->size(), 200'000U);
}

TEST(Numbers, ParsesRanges) {
  EXPECT_EQ(*expand_numbers("0-2, 8"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_TRUE(expand_numbers("")->empty());
  EXPECT_FALSE(expand_numbers("0-99999999").ok());
  EXPECT_FALSE(expand_numbers("GPU-12ab").ok());
}

}  // namespace
}  // namespace regroup::spec
