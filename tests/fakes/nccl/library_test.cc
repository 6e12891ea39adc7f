// Which versions of NCCL are served and what each has, with fakes that have their symbols. Each
// library is loaded in a process of its own, since one that is loaded stays.
#include "collective/nccl/library.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <string>

namespace regroup::collective::nccl {
namespace {

using testing::HasSubstr;

std::string fake(const std::string& name) {
  return fmt::format("{}/{}/libnccl.so.2", FAKE_NCCL, name);
}

// The text that `say` returns in a new process.
std::string in_new_process(const std::function<std::string()>& say) {
  int ends[2];
  if (::pipe(ends) != 0) return "pipe failed";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = say();
    const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return text;
}

// What load_nccl() finds at the fake `name`: why not, or the version and the optional functions.
std::string found_at(const std::string& name) {
  return in_new_process([&] {
    const auto library = load_nccl({fake(name)});
    if (!library.ok()) return library.status().message();
    std::string text = version_text(library->version);
#define REGROUP_NCCL_SAY(member, symbol, ...) \
  if (library->member != nullptr) text += " " #symbol;
    REGROUP_NCCL_OPTIONAL_FUNCTIONS(REGROUP_NCCL_SAY)
#undef REGROUP_NCCL_SAY
    return text + (library->has_encryption ? " ncclSetEncryption" : "");
  });
}

TEST(NcclLibrary, HasTheFunctionsOfItsVersion) {
  EXPECT_EQ(found_at("2.19.3"), "2.19.3");
  EXPECT_EQ(found_at("2.28.9"),
            "2.28.9 ncclCommInitRankScalable ncclCommRevoke ncclCommShrink ncclAlltoAll");
  EXPECT_EQ(found_at("2.32.3"),
            "2.32.3 ncclCommInitRankScalable ncclCommRevoke ncclCommShrink ncclAlltoAll "
            "ncclCommGrow ncclCommGetUniqueId ncclCommSuspend ncclCommMemStats ncclSetEncryption");
}

TEST(NcclLibrary, VersionsThatAreTooOldOrCrashAreRefusedByName) {
  EXPECT_EQ(found_at("2.18.3"), "libnccl.so.2 is version 2.18.3; expected 2.19 or newer");
  EXPECT_EQ(found_at("2.28.5"),
            "libnccl.so.2 is version 2.28.5, which crashes when members restart; expected 2.28.9 "
            "or newer, or 2.27");
  EXPECT_EQ(version_text(2708), "2.7.8");
  for (const int served : {21900, 21903, 22707, 22802, 22809, 22907, 23007, 23102, 23203})
    EXPECT_EQ(why_not_served(served), "") << served;
  for (const int refused : {2708, 21200, 21805, 22803, 22804, 22806, 22808})
    EXPECT_NE(why_not_served(refused), "") << refused;
}

TEST(NcclLibrary, AMissingFunctionIsNamed) {
  EXPECT_EQ(found_at("damaged"), "libnccl.so.2 of version 2.19.3 has no ncclCommAbort");
}

TEST(NcclLibrary, ALibraryThatIsMissingIsNamed) {
  const std::string text = in_new_process([] {
    const auto library = load_nccl({"/no/such/folder/libnccl.so.2"});
    return library.ok() ? "found " + version_text(library->version) : library.status().message();
  });
  // A machine with NCCL in the loader's path has one.
  EXPECT_THAT(text, testing::AnyOf(HasSubstr("no libnccl.so.2: "), HasSubstr("found 2."),
                                   HasSubstr("libnccl.so.2 is version")));
}

TEST(NcclLibrary, TheOneInTheProcessCountsBeforeAnyOther) {
  EXPECT_EQ(in_new_process([] {
              const auto first = load_nccl({fake("2.19.3")});
              const auto second = load_nccl({fake("2.32.3")});
              return fmt::format("{} {}", first.value().version, second.value().version);
            }),
            "21903 21903");
}

TEST(NcclLibrary, AnErrorHasTheCallAndTheLibrarysOwnWords) {
  EXPECT_EQ(in_new_process([] {
              const auto library = load_nccl({fake("2.28.9")}).value();
              const auto status = library.status(library.comm_async_error(nullptr, nullptr),
                                                 "ncclCommGetAsyncError");
              return fmt::format("{}{}{}", status.message(),
                                 status.code() == base::Code::kInvalidArgument ? "; invalid" : "",
                                 library.status(Result::kInProgress, "").ok() ? "; pending" : "");
            }),
            "ncclCommGetAsyncError: invalid argument (said by the fake); invalid; pending");
}

// `nm` of the wheel nvidia-nccl-cu13 2.30.7 from PyPI.
TEST(NcclLibrary, ARealLibraryHasTheFunctionsThatAreUsed) {
  std::ifstream file("tests/golden/nccl/symbols-2.30.7.txt");
  std::set<std::string> symbols;
  for (std::string line; std::getline(file, line);) symbols.insert(line);
  ASSERT_GT(symbols.size(), 50U);
#define REGROUP_NCCL_EXPECT(member, symbol, ...) EXPECT_TRUE(symbols.contains(#symbol)) << #symbol;
  REGROUP_NCCL_FUNCTIONS(REGROUP_NCCL_EXPECT)
  REGROUP_NCCL_OPTIONAL_FUNCTIONS(REGROUP_NCCL_EXPECT)
#undef REGROUP_NCCL_EXPECT
}

}  // namespace
}  // namespace regroup::collective::nccl
