// A line at the end of the launcher's terminal that is redrawn in place (--progress). Agent,
// coordinator and guardian write to the same terminal: each erases the line before it writes, and
// the line is not drawn while another one is incomplete, so that they never mix.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>

namespace regroup::process {

// Shared by the processes that are forked after make(). A process that dies while it writes does
// not block the others.
class TerminalLine {
 public:
  // Moves to the start of the terminal's line and erases it.
  static constexpr std::string_view kErase = "\r\x1b[K";

  // Null: the system has no memory for it.
  [[nodiscard]] static std::shared_ptr<TerminalLine> make();
  // Columns of the terminal; 80 if it does not say.
  [[nodiscard]] static std::size_t columns(int terminal);
  // False: another job of the shell has the terminal, and a line would disturb it.
  [[nodiscard]] static bool in_foreground(int terminal);

  ~TerminalLine();
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  // In memory that the processes share.
  struct Shared {
    pthread_mutex_t mutex;  // robust
    std::atomic<bool> drawn{false};
    std::atomic<bool> open{false};
  };

  // While it lives, no other process writes; it waits for its turn for at most 100 ms. Not with
  // another Turn in the same thread.
  class Turn {
   public:
    explicit Turn(TerminalLine& line);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    [[nodiscard]] bool drawn() const { return shared_.drawn.load(); }
    // A line without its end is on the terminal, a prompt for example.
    [[nodiscard]] bool line_is_open() const { return shared_.open.load(); }
    void set_drawn(bool drawn) { shared_.drawn.store(drawn); }
    void wrote(char last) { shared_.open.store(last != '\n'); }

   private:
    Shared& shared_;
    bool locked_ = false;
  };

 private:
  explicit TerminalLine(Shared* shared) : shared_(shared) {}
  Shared* const shared_;
};

}  // namespace regroup::process
