// The text of PMI-1, the protocol of MPICH's launchers: lines of key=value, "cmd=NAME ..." alone,
// or a block from "mcmd=NAME" to "endcmd" with one pair to a line. Flux RFC 13 describes it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace regroup::pmi {

inline constexpr std::size_t kMaxKvsNameBytes = 256;
inline constexpr std::size_t kMaxKeyBytes = 64;
inline constexpr std::size_t kMaxValueBytes = 1024;

struct Pmi1Command {
  std::string name;
  std::map<std::string, std::string> arguments;

  [[nodiscard]] std::string get(const std::string& key, const std::string& otherwise = "") const;
  // kInvalidArgument if the argument is missing or not a number.
  [[nodiscard]] base::Result<std::int64_t> number(const std::string& key) const;
};

// Cuts a byte stream into commands. A bad line is final: every later next() returns the same error.
class Pmi1Reader {
 public:
  void append(std::string_view bytes) { buffer_ += bytes; }
  // Returns the next whole command, or nullopt if it needs more bytes.
  [[nodiscard]] base::Result<std::optional<Pmi1Command>> next();

 private:
  [[nodiscard]] base::Result<std::optional<Pmi1Command>> fail(std::string message);

  std::string buffer_;
  base::Status error_;
};

}  // namespace regroup::pmi
