// A stream from pipe to pipe: nothing is lost or reordered, a slow reader blocks the writer, a
// closed one ends it.
#include "launcher/agent/stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <deque>
#include <string>

#include "launcher/agent/messages.h"

namespace regroup::agent {
namespace {

class Stream : public testing::Test {
 protected:
  struct Piece {
    std::vector<std::byte> bytes;
    bool end = false;
  };

  Stream() {
    std::signal(SIGPIPE, SIG_IGN);
    base::Fd read;
    make(read, in_);
    ::fcntl(read.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(in_.get(), F_SETFL, O_NONBLOCK);
    source_ = std::make_shared<StreamSource>(
        loop_, std::move(read), [this](std::span<const std::byte> bytes, bool end) {
          on_way_.push_back({{bytes.begin(), bytes.end()}, end});
          in_flight_ += bytes.size();
          most_in_flight_ = std::max(most_in_flight_, in_flight_);
        });
    base::Fd write;
    make(out_, write);
    ::fcntl(write.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(out_.get(), F_SETFL, O_NONBLOCK);
    target_ = std::make_shared<StreamTarget>(loop_, std::move(write),
                                             [this](std::size_t bytes, bool broken) {
                                               in_flight_ -= bytes;
                                               if (broken) source_->stop();
                                               source_->consumed(bytes);
                                             });
    source_->start();
  }
  ~Stream() override {
    source_->stop();
    target_->stop();
  }

  static void make(base::Fd& read, base::Fd& write) {
    int fds[2];
    ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    read = base::Fd(fds[0]);
    write = base::Fd(fds[1]);
  }

  // What is under way arrives, and the loop runs dry.
  void carry() {
    for (bool busy = true; busy;) {
      loop_.restart();
      busy = loop_.poll() > 0;
      while (!on_way_.empty()) {
        const Piece piece = std::move(on_way_.front());
        on_way_.pop_front();
        target_->write(piece.bytes, piece.end);
        busy = true;
      }
    }
  }

  // As much of `text`, from `at`, as the pipe takes.
  std::size_t write_some(const std::string& text, std::size_t at) {
    const ssize_t count = ::write(in_.get(), text.data() + at, text.size() - at);
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  // False at the end.
  bool read_some(std::string& text) {
    char bytes[4096];
    const ssize_t count = ::read(out_.get(), bytes, sizeof bytes);
    if (count > 0) text.append(bytes, static_cast<std::size_t>(count));
    return count != 0;
  }

  boost::asio::io_context loop_;
  base::Fd in_, out_;
  std::shared_ptr<StreamSource> source_;
  std::shared_ptr<StreamTarget> target_;
  std::deque<Piece> on_way_;
  std::size_t in_flight_ = 0, most_in_flight_ = 0;
};

std::string much() {
  std::string text;
  for (std::size_t i = 0; text.size() < 4 * std::size_t{kWindow}; ++i)
    text += std::to_string(i) + ",";
  return text;
}

TEST_F(Stream, AllArrivesInOrderAndThenItsEnd) {
  const std::string text = much();
  std::string got;
  for (std::size_t at = 0; got.size() < text.size();) {
    at += write_some(text, at);
    carry();
    ASSERT_TRUE(read_some(got));
  }
  EXPECT_TRUE(got == text);
  in_.reset();
  carry();
  EXPECT_FALSE(read_some(got));
  EXPECT_TRUE(source_->idle());
  EXPECT_LE(most_in_flight_, kWindow);
}

TEST_F(Stream, ASlowReaderHoldsUpTheWriter) {
  const std::string text = much();
  std::size_t at = 0;
  for (std::size_t more = 1; more > 0; at += more) {
    more = write_some(text, at);
    carry();
  }
  EXPECT_LT(at, text.size());
  EXPECT_LE(in_flight_, kWindow);
  EXPECT_FALSE(source_->idle());
  std::string got;
  while (got.size() < at) {
    ASSERT_TRUE(read_some(got));
    carry();
  }
  EXPECT_TRUE(source_->idle());
}

TEST_F(Stream, AGoneReaderEndsTheWriter) {
  out_.reset();
  ASSERT_GT(write_some("text", 0), 0U);
  carry();
  EXPECT_EQ(::write(in_.get(), "more", 4), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_TRUE(source_->idle());
}

}  // namespace
}  // namespace regroup::agent
