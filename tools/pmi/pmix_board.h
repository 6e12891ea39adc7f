// The data that PMIx clients publish and look up: for MPI_Publish_name, and for MPI_Comm_accept and
// MPI_Comm_connect.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "tools/pmi/pmix_library.h"

namespace regroup::pmi {

// The number of the host that publishes or looks up, and the bytes that it has sent for that.
struct NameSource {
  std::uint32_t host = 0;  // this one, which may hold as much as it likes
  std::size_t bytes = 0;
};

// To be used on the loop's thread only.
class PmixBoard {
 public:
  PmixBoard(boost::asio::io_context& loop, const PmixLibrary& library)
      : loop_(loop), library_(library) {}
  ~PmixBoard();
  PmixBoard(const PmixBoard&) = delete;
  PmixBoard& operator=(const PmixBoard&) = delete;

  // PMIX_ERR_DUPLICATE_KEY if a key is already published, or named twice; PMIX_ERR_OUT_OF_RESOURCE
  // if the source holds as much here as it may.
  [[nodiscard]] pmix_status_t publish(const pmix_proc_t& owner, const pmix_info_t* infos,
                                      std::size_t count, NameSource source = {});
  // Calls `found` at once with the keys that are published; with PMIX_WAIT, when all are, or after
  // PMIX_TIMEOUT; with PMIX_ERR_OUT_OF_RESOURCE if the source holds as much here as it may.
  using Found = std::function<void(pmix_status_t, std::vector<pmix_pdata_t>&)>;
  void lookup(const pmix_proc_t& owner, std::vector<std::string> keys, const pmix_info_t* infos,
              std::size_t count, Found found, NameSource source = {});
  // Ends the lookups of `owner` with PMIX_ERR_LOST_CONNECTION. PMIX_RANK_WILDCARD means all ranks.
  void forget(const pmix_proc_t& owner);
  // The processes of `space` have ended: as forget() for all of them, and removes what they have
  // published, so that a restarted job can publish it again.
  void close(const char* space);
  // Removes `keys` that `owner` published; if there are none, all of the owner's keys.
  [[nodiscard]] pmix_status_t unpublish(const pmix_proc_t& owner,
                                        const std::vector<std::string>& keys);

 private:
  struct Entry {
    pmix_proc_t owner;
    pmix_value_t value;
    bool once;  // PMIX_PERSIST_FIRST_READ
    NameSource source;
  };
  struct Waiter {
    std::uint64_t id;
    pmix_proc_t owner;
    std::vector<std::string> keys;
    std::size_t wanted;
    Found found;
    std::unique_ptr<boost::asio::steady_timer> limit;
    NameSource source;
  };

  [[nodiscard]] std::size_t present(const std::vector<std::string>& keys) const;
  void answer(const std::vector<std::string>& keys, const Found& found);
  void wait(Waiter waiter, std::uint32_t seconds);
  [[nodiscard]] Waiter take(std::list<Waiter>::iterator waiter);
  [[nodiscard]] bool has_room(NameSource source, std::size_t entries) const;
  void erase(std::map<std::string, Entry>::iterator entry);

  boost::asio::io_context& loop_;
  const PmixLibrary& library_;
  std::map<std::string, Entry> entries_;
  std::map<std::uint32_t, std::size_t> held_;  // bytes of values and waiters of other hosts
  std::list<Waiter> waiters_;
  std::uint64_t last_waiter_ = 0;
};

}  // namespace regroup::pmi
