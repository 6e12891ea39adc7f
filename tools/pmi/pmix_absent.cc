// Replaces the PMIx server if regroup is built without libpmix's headers.
#include "base/status.h"
#include "tools/pmi/pmix_server.h"

namespace regroup::pmi {

struct PmixState {};

PmixServer::PmixServer(std::unique_ptr<PmixState> state) : state_(std::move(state)) {}
PmixServer::~PmixServer() = default;

base::Result<std::unique_ptr<PmixServer>> PmixServer::start(boost::asio::io_context&, PmixOptions,
                                                            PmixEvents) {
  return base::not_found("this regroup was built without the headers of libpmix");
}

base::Result<std::vector<std::vector<std::string>>> PmixServer::open_space(const OpenSpace&) {
  return base::internal_error("no PMIx server was started");
}

base::Result<std::vector<std::string>> PmixServer::environment_of(ProcId) const {
  return base::internal_error("no PMIx server was started");
}

void PmixServer::fetch(ProcId,
                       PmixEvents::OnFetched then) {  // NOLINT(performance-unnecessary-value-param)
  then(-1, {});
}

void PmixServer::names(const NameCall&,
                       PmixEvents::OnFetched then) {  // NOLINT(performance-unnecessary-value-param)
  then(-1, {});
}

void PmixServer::close_space(std::uint32_t) {}

void PmixServer::member_gone(const MemberGone&) {}

}  // namespace regroup::pmi
