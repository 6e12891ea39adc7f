// A part whose hosts are not all there yet waits in the pmi::Exchange.
#include "launcher/supervise/host_exchange.h"

#include <utility>
#include <variant>

namespace regroup::launcher {
namespace {

constexpr std::int32_t kPmixNotFound = -46;

}  // namespace

HostExchange::HostExchange(NodeOf node_of, HostOf host_of)
    : node_of_(std::move(node_of)), host_of_(std::move(host_of)) {}

void HostExchange::tell(std::uint32_t host, const pmi::Message& message) {
  if (Node* node = node_of_(host)) node->tell(message);
}

bool HostExchange::may_say(std::uint32_t host, const pmi::Message& message) const {
  if (host == 0) return true;
  const auto of = [&](pmi::Seat seat) { return host_of_(seat) == host; };
  if (const auto* connected = std::get_if<pmi::Connected>(&message)) return of(connected->seat);
  if (const auto* finalized = std::get_if<pmi::Finalized>(&message)) return of(finalized->seat);
  if (const auto* aborted = std::get_if<pmi::Aborted>(&message)) return of(aborted->seat);
  if (const auto* spawn = std::get_if<pmi::Spawn>(&message)) return of(spawn->parent);
  if (const auto* part = std::get_if<pmi::Contribute>(&message)) return part->host == host;
  if (const auto* fetch = std::get_if<pmi::Fetch>(&message)) return fetch->host == host;
  if (const auto* fetched = std::get_if<pmi::Fetched>(&message)) {
    const auto found = asked_.find({fetched->host, fetched->request});
    return found != asked_.end() && found->second == host;
  }
  return true;
}

void HostExchange::pass(std::uint32_t host, const pmi::Message& message) {
  if (!may_say(host, message)) return;
  if (const auto* part = std::get_if<pmi::Contribute>(&message)) {
    const auto gathered = parts_.add(*part);
    if (!gathered) return;
    for (const std::uint32_t each : part->hosts) tell(each, *gathered);
  } else if (const auto* asked = std::get_if<pmi::Fetch>(&message)) {
    fetch(*asked);
  } else if (const auto* fetched = std::get_if<pmi::Fetched>(&message)) {
    asked_.erase({fetched->host, fetched->request});
    tell(fetched->host, *fetched);
  }
}

void HostExchange::fetch(const pmi::Fetch& fetch) {
  const auto host = host_of_(fetch.of);
  if (!host) return tell(fetch.host, pmi::Fetched{fetch.request, fetch.host, kPmixNotFound, {}});
  asked_[{fetch.host, fetch.request}] = *host;
  tell(*host, fetch);
}

}  // namespace regroup::launcher
