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

void HostExchange::pass(const pmi::Message& message) {
  if (const auto* part = std::get_if<pmi::Contribute>(&message)) {
    const auto gathered = parts_.add(*part);
    if (!gathered) return;
    for (const std::uint32_t host : part->hosts) tell(host, *gathered);
  } else if (const auto* fetch = std::get_if<pmi::Fetch>(&message)) {
    if (const auto host = host_of_(fetch->of)) return tell(*host, *fetch);
    tell(fetch->host, pmi::Fetched{fetch->request, fetch->host, kPmixNotFound, {}});
  } else if (const auto* fetched = std::get_if<pmi::Fetched>(&message)) {
    tell(fetched->host, *fetched);
  }
}

}  // namespace regroup::launcher
