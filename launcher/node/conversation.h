// What the head of a job and one of its agents say to each other where it goes through others, any of which
// may be lost with what it carries: each side numbers what it says, keeps it until the other has heard it,
// and takes what comes once, in its order. Pure: it sends nothing itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace regroup::node {

class Conversation {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  struct Said {
    std::uint64_t number = 0;
    Bytes message;  // as encode() made it
    bool answered = false;
  };

  // To be sent with this number, now or, if there is no way, when it is said again.
  std::uint64_t say(Bytes message, bool answered);
  // The other side has heard all up to `number`.
  void heard(std::uint64_t number);
  // In order: what the other side may not have heard.
  [[nodiscard]] const std::deque<Said>& unheard() const { return unheard_; }
  // More than an other side that goes on hearing would leave unheard: it does not say what it hears.
  [[nodiscard]] bool overfull() const { return kept_ > kMostKept; }

  // Whether a message that has come is to be handled: it is the next one. Others came before, or will come
  // again.
  [[nodiscard]] bool take(std::uint64_t number, std::size_t bytes);
  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  // What the other side is to be told now as heard, if anything; it is then told.
  [[nodiscard]] std::optional<std::uint64_t> due();

  static constexpr std::uint64_t kTellMessages = 64;
  static constexpr std::size_t kTellBytes = 256 << 10;
  static constexpr std::size_t kMostKept = 256 << 20;

 private:
  std::uint64_t said_ = 0, taken_ = 0, told_ = 0;
  std::size_t untold_bytes_ = 0;
  std::deque<Said> unheard_;
  std::size_t kept_ = 0;  // bytes in them
};

}  // namespace regroup::node
