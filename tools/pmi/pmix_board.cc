// All spaces of the job share one board: PMIx ranges narrower than the session are ignored.
#include "tools/pmi/pmix_board.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace regroup::pmi {
namespace {

constexpr std::size_t kMostHeld = 64 << 20;  // bytes of another host
constexpr std::size_t kEntry = 512;          // of the map

// Directives that PMIx mixes with the data to publish.
bool is_directive(const pmix_info_t& info) {
  for (const char* key : {PMIX_RANGE, PMIX_PERSISTENCE, PMIX_USERID, PMIX_GRPID, PMIX_TIMEOUT}) {
    if (std::strncmp(info.key, key, PMIX_MAX_KEYLEN) == 0) return true;
  }
  return false;
}

const pmix_info_t* find(const pmix_info_t* infos, std::size_t count, const char* key) {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::strncmp(infos[i].key, key, PMIX_MAX_KEYLEN) == 0) return &infos[i];
  }
  return nullptr;
}

std::uint32_t seconds_of(const pmix_info_t* info) {
  if (info == nullptr) return 0;
  const pmix_value_t& value = info->value;
  return value.type == PMIX_UINT32 ? value.data.uint32
                                   : static_cast<std::uint32_t>(value.data.integer);
}

}  // namespace

PmixBoard::~PmixBoard() {
  while (!entries_.empty()) erase(entries_.begin());
}

void PmixBoard::erase(std::map<std::string, Entry>::iterator entry) {
  library_.Value_destruct(&entry->second.value);
  if (entry->second.source.host != 0)
    held_[entry->second.source.host] -= entry->second.source.bytes;
  entries_.erase(entry);
}

pmix_status_t PmixBoard::publish(const pmix_proc_t& owner, const pmix_info_t* infos,
                                 std::size_t count, NameSource source) {
  const pmix_info_t* persistence = find(infos, count, PMIX_PERSISTENCE);
  const bool once =
      persistence != nullptr && persistence->value.data.persist == PMIX_PERSIST_FIRST_READ;
  std::set<std::string> keys;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_directive(infos[i])) continue;
    const bool first = keys.insert(infos[i].key).second;
    if (!first || entries_.contains(infos[i].key)) return PMIX_ERR_DUPLICATE_KEY;
  }
  const bool elsewhere = source.host != 0;
  source.bytes = source.bytes / std::max<std::size_t>(count, 1) + kEntry;  // of each entry
  if (!has_room(source, count)) return PMIX_ERR_OUT_OF_RESOURCE;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_directive(infos[i])) continue;
    Entry& entry = entries_[infos[i].key];
    entry = {owner, {}, once, source};
    if (elsewhere) held_[source.host] += source.bytes;
    library_.Value_xfer(&entry.value, &infos[i].value);
  }
  // An answer may remove entries, so waiters are served one at a time, in the order of arrival.
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const auto next = std::next(waiter);
    if (present(waiter->keys) >= waiter->wanted) {
      const Waiter served = take(waiter);
      answer(served.keys, served.found);
    }
    waiter = next;
  }
  return PMIX_SUCCESS;
}

std::size_t PmixBoard::present(const std::vector<std::string>& keys) const {
  return static_cast<std::size_t>(std::count_if(
      keys.begin(), keys.end(), [&](const auto& key) { return entries_.contains(key); }));
}

void PmixBoard::answer(const std::vector<std::string>& keys, const Found& found) {
  std::vector<pmix_pdata_t> data;
  std::set<std::string> read;  // a caller may name a key twice
  for (const std::string& key : keys) {
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) continue;
    pmix_pdata_t& out = data.emplace_back();
    out.proc = entry->second.owner;
    std::strncpy(out.key, key.c_str(), PMIX_MAX_KEYLEN);
    out.value = entry->second.value;  // not owned: `found` copies it before it returns
    if (entry->second.once) read.insert(key);
  }
  const bool all = data.size() == keys.size();
  found(all ? PMIX_SUCCESS : data.empty() ? PMIX_ERR_NOT_FOUND : PMIX_ERR_PARTIAL_SUCCESS, data);
  for (const std::string& key : read) erase(entries_.find(key));
}

void PmixBoard::lookup(const pmix_proc_t& owner, std::vector<std::string> keys,
                       const pmix_info_t* infos, std::size_t count, Found found,
                       NameSource source) {
  const pmix_info_t* wait_for = find(infos, count, PMIX_WAIT);
  // 0, or no number, means every key.
  const std::size_t asked =
      wait_for == nullptr || wait_for->value.type == PMIX_BOOL
          ? 0
          : static_cast<std::size_t>(std::max(0, wait_for->value.data.integer));
  const std::size_t wanted = asked == 0 ? keys.size() : std::min(asked, keys.size());
  if (wait_for == nullptr || present(keys) >= wanted) return answer(keys, found);
  source.bytes += kEntry;
  if (!has_room(source, 1)) {
    std::vector<pmix_pdata_t> none;
    return found(PMIX_ERR_OUT_OF_RESOURCE, none);
  }
  if (source.host != 0) held_[source.host] += source.bytes;
  wait({++last_waiter_, owner, std::move(keys), wanted, std::move(found), nullptr, source},
       seconds_of(find(infos, count, PMIX_TIMEOUT)));
}

bool PmixBoard::has_room(NameSource source, std::size_t entries) const {
  const auto held = held_.find(source.host);
  const std::size_t bytes = held == held_.end() ? 0 : held->second;
  return source.host == 0 || bytes + entries * source.bytes <= kMostHeld;
}

// Removes it from the list, and gives its bytes back.
PmixBoard::Waiter PmixBoard::take(std::list<Waiter>::iterator waiter) {
  Waiter taken = std::move(*waiter);
  waiters_.erase(waiter);
  if (taken.source.host != 0) held_[taken.source.host] -= taken.source.bytes;
  return taken;
}

void PmixBoard::wait(Waiter waiter, std::uint32_t seconds) {
  const auto place = waiters_.insert(waiters_.end(), std::move(waiter));
  if (seconds == 0) return;
  place->limit = std::make_unique<boost::asio::steady_timer>(loop_, std::chrono::seconds(seconds));
  place->limit->async_wait([this, id = place->id](const boost::system::error_code& error) {
    const auto place = std::ranges::find(waiters_, id, &Waiter::id);
    if (error || place == waiters_.end()) return;  // the waiter was served in the meantime
    const Waiter late = take(place);
    std::vector<pmix_pdata_t> none;
    late.found(PMIX_ERR_TIMEOUT, none);
  });
}

void PmixBoard::forget(const pmix_proc_t& owner) {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const auto next = std::next(waiter);
    const pmix_proc_t& who = waiter->owner;
    const bool meant = owner.rank == PMIX_RANK_WILDCARD || owner.rank == who.rank;
    if (meant && std::strcmp(who.nspace, owner.nspace) == 0) {
      const Waiter gone = take(waiter);
      std::vector<pmix_pdata_t> none;
      gone.found(PMIX_ERR_LOST_CONNECTION, none);
    }
    waiter = next;
  }
}

void PmixBoard::close(const char* space) {
  forget(make_proc(space, PMIX_RANK_WILDCARD));
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (std::strcmp(entry->second.owner.nspace, space) == 0) erase(entry);
    entry = next;
  }
}

pmix_status_t PmixBoard::unpublish(const pmix_proc_t& owner, const std::vector<std::string>& keys) {
  std::size_t gone = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    const pmix_proc_t& from = entry->second.owner;
    const bool own = from.rank == owner.rank && std::strcmp(from.nspace, owner.nspace) == 0;
    const bool meant =
        keys.empty() || std::find(keys.begin(), keys.end(), entry->first) != keys.end();
    if (own && meant) {
      erase(entry);
      ++gone;
    }
    entry = next;
  }
  return keys.empty() || gone > 0 ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND;
}

}  // namespace regroup::pmi
