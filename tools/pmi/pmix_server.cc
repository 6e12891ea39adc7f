// Registers spaces with libpmix: the facts about the job that an MPI reads at its start.
#include "tools/pmi/pmix_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <set>

#include "tools/pmi/layout.h"
#include "tools/pmi/pmix_calls.h"
#include "tools/pmi/pmix_names.h"
#include "tools/pmi/pmix_state.h"

namespace regroup::pmi {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

struct FreeStrings {
  void operator()(char** strings) const {
    for (char** string = strings; string != nullptr && *string != nullptr; ++string)
      std::free(*string);
    std::free(strings);
  }
};

std::string listed(const std::vector<std::uint32_t>& ranks) {
  return fmt::format("{}", fmt::join(ranks, ","));
}

// What Open MPI puts into MPI_INFO_ENV: "ompi_num_apps", "ompi_np" and "ompi_first_rank".
std::vector<std::string> programs_of(const OpenSpace& space) {
  std::vector<std::uint32_t> first;
  std::exclusive_scan(space.app_sizes.begin(), space.app_sizes.end(), std::back_inserter(first),
                      std::uint32_t{0});
  return {fmt::format("OMPI_NUM_APP_CTX={}", space.app_sizes.size()),
          fmt::format("OMPI_APP_CTX_NUM_PROCS={}", fmt::join(space.app_sizes, " ")),
          fmt::format("OMPI_FIRST_RANKS={}", fmt::join(first, " "))};
}

// The facts about the job as a whole.
void add_job(InfoList& infos, const PmixState& state, const OpenSpace& space,
             const Layout& layout) {
  const auto local = static_cast<std::uint32_t>(layout.here().size());
  infos.add(PMIX_JOBID, fmt::format("{}", space.space + 1));
  infos.add(PMIX_UNIV_SIZE, std::max(space.slots, layout.size()));
  infos.add(PMIX_MAX_PROCS, std::max(space.slots, layout.size()));
  infos.add(PMIX_JOB_SIZE, layout.size());
  infos.add(PMIX_LOCAL_SIZE, local);
  infos.add(PMIX_NODE_SIZE, local);
  infos.add(PMIX_NUM_NODES, static_cast<std::uint32_t>(layout.hosts().size()));
  infos.add(PMIX_JOB_NUM_APPS, static_cast<std::uint32_t>(space.app_sizes.size()));
  infos.add(PMIX_LOCAL_PEERS, listed(layout.here()));
  if (local > 0) {
    infos.add_rank(PMIX_LOCALLDR, layout.here()[0]);
    infos.add(PMIX_NODEID, layout.index_of(layout.here()[0]));
  }
  infos.add_rank(PMIX_NPROC_OFFSET, 0);
  infos.add(PMIX_NODE_OVERSUBSCRIBED, space.oversubscribed);
  const std::string folder = fmt::format("{}/{}", state.options.folder, space.space);
  ::mkdir(folder.c_str(), 0700);
  infos.add(PMIX_TMPDIR, state.options.folder);
  infos.add(PMIX_NSDIR, folder);
  infos.add(PMIX_TDIR_RMCLEAN, true);
}

// The hosts, and the ranks on each.
void add_maps(InfoList& infos, const PmixLibrary& library, const Layout& layout) {
  std::vector<std::string> names, ranks;
  for (const Layout::Host& host : layout.hosts()) {
    names.push_back(host.name);
    ranks.push_back(listed(host.ranks));
  }
  char* nodes = nullptr;
  char* procs = nullptr;
  const std::string all_names = fmt::format("{}", fmt::join(names, ","));
  const std::string all_ranks = fmt::format("{}", fmt::join(ranks, ";"));
  if (library.generate_regex(all_names.c_str(), &nodes) == PMIX_SUCCESS)
    infos.add_regex(PMIX_NODE_MAP, nodes);
  if (library.generate_ppn(all_ranks.c_str(), &procs) == PMIX_SUCCESS)
    infos.add_regex(PMIX_PROC_MAP, procs);
  std::free(nodes);
  std::free(procs);
}

// Open MPI asks which hardware two ranks share; ranks that are not bound share the node.
void add_binding(InfoList& facts, const OpenSpace& space, std::uint32_t rank) {
  if (rank >= space.bindings.size() || space.bindings[rank].locality.empty()) return;
  facts.add(PMIX_CPUSET, space.bindings[rank].cpus);
  facts.add(PMIX_LOCALITY_STRING, space.bindings[rank].locality);
}

// The facts about each rank.
void add_ranks(InfoList& infos, const PmixLibrary& library, const OpenSpace& space,
               const Layout& layout) {
  std::uint32_t rank = 0;
  for (std::uint32_t app = 0; app < space.app_sizes.size(); ++app) {
    for (std::uint32_t index = 0; index < space.app_sizes[app]; ++index, ++rank) {
      InfoList facts(library);
      facts.add_rank(PMIX_RANK, rank);
      facts.add(PMIX_APPNUM, app);
      facts.add_rank(PMIX_APP_RANK, index);
      facts.add_rank(PMIX_GLOBAL_RANK, rank);
      facts.add_small(PMIX_LOCAL_RANK, static_cast<std::uint16_t>(layout.local_rank(rank)));
      facts.add_small(PMIX_NODE_RANK, static_cast<std::uint16_t>(layout.local_rank(rank)));
      facts.add(PMIX_HOSTNAME, layout.host_of(rank).name);
      facts.add(PMIX_NODEID, layout.index_of(rank));
      add_binding(facts, space, rank);
      infos.add(PMIX_PROC_DATA, facts);
    }
  }
}

// A libpmix newer than the headers reads a longer table: the entries after ours must be null.
struct PmixModule {
  pmix_server_module_t calls;
  std::array<void*, 32> more;
};

bool succeeded(pmix_status_t status) {
  return status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED;
}

base::Status register_space(const PmixState& state, const OpenSpace& space, const Layout& layout) {
  InfoList infos(state.library);
  add_job(infos, state, space, layout);
  add_maps(infos, state.library, layout);
  add_ranks(infos, state.library, space, layout);
  if (space.parent) {
    infos.add(PMIX_SPAWNED, true);
    infos.add(PMIX_PARENT_ID, make_proc(state.name_of(space.parent->space), space.parent->rank));
  }
  pmix_proc_t proc = make_proc(state.name_of(space.space), 0);
  // Without a callback the calls block until they are complete.
  pmix_status_t status =
      state.library.server_register_nspace(proc.nspace, static_cast<int>(layout.here().size()),
                                           infos.data(), infos.size(), nullptr, nullptr);
  for (const std::uint32_t rank : layout.here()) {
    if (!succeeded(status)) break;
    proc.rank = rank;
    status = state.library.server_register_client(&proc, ::getuid(), ::getgid(), nullptr, nullptr,
                                                  nullptr);
  }
  return succeeded(status) ? base::Status()
                           : state.library.error("server_register", proc.nspace, status);
}

}  // namespace

std::string PmixState::name_of(std::uint32_t space) const {
  return fmt::format("regroup-{}.{}", options.job, space);
}

std::optional<ProcId> PmixState::proc_id_of(const pmix_proc_t& proc) const {
  const std::string prefix = fmt::format("regroup-{}.", options.job);
  const std::string name = proc.nspace;
  if (!name.starts_with(prefix)) return std::nullopt;
  ProcId process{0, proc.rank};
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, process.space);
  if (error != std::errc() || stop != end) return std::nullopt;
  return process;
}

std::vector<std::uint32_t> PmixState::hosts_of(const pmix_proc_t* procs, std::size_t count) const {
  std::set<std::uint32_t> hosts;
  for (std::size_t i = 0; i < count; ++i) {
    const auto process = proc_id_of(procs[i]);
    const auto space = process ? spaces.find(process->space) : spaces.end();
    if (space == spaces.end()) continue;
    const auto& host_of = space->second;
    if (procs[i].rank == PMIX_RANK_WILDCARD) hosts.insert(host_of.begin(), host_of.end());
    if (procs[i].rank < host_of.size()) hosts.insert(host_of[procs[i].rank]);
  }
  return {hosts.begin(), hosts.end()};
}

PmixServer::PmixServer(std::unique_ptr<PmixState> state) : state_(std::move(state)) {}

// Does not finalize libpmix, since that can take longer than a job; the process ends soon.
PmixServer::~PmixServer() { static_cast<void>(pmix_calls(nullptr)); }

base::Result<std::unique_ptr<PmixServer>> PmixServer::start(boost::asio::io_context& loop,
                                                            PmixOptions options,
                                                            PmixEvents events) {
  REGROUP_ASSIGN_OR_RETURN(auto library, PmixLibrary::load(options.library));
  auto state = std::make_unique<PmixState>(loop, library, std::move(options), std::move(events));
  PmixModule module{pmix_calls(state.get()), {}};
  InfoList infos(state->library);
  infos.add(PMIX_SERVER_TMPDIR, state->options.folder);
  infos.add(PMIX_SERVER_NSPACE, fmt::format("regroup-{}.server", state->options.job));
  infos.add_rank(PMIX_SERVER_RANK, state->options.host);
  const pmix_status_t status = library.server_init(&module.calls, infos.data(), infos.size());
  if (status != PMIX_SUCCESS) return library.error("server_init", state->options.folder, status);
  return std::unique_ptr<PmixServer>(new PmixServer(std::move(state)));
}

base::Result<std::vector<std::vector<std::string>>> PmixServer::open_space(const OpenSpace& space) {
  const Layout layout(space, host_name());
  REGROUP_RETURN_IF_ERROR(register_space(*state_, space, layout));
  auto& host_of = state_->spaces[space.space];
  for (std::uint32_t rank = 0; rank < layout.size(); ++rank)
    host_of.push_back(layout.host_of(rank).number);
  state_->programs[space.space] = programs_of(space);
  std::vector<std::vector<std::string>> out(layout.size());
  for (const std::uint32_t rank : layout.here()) {
    REGROUP_ASSIGN_OR_RETURN(out[rank], environment_of({space.space, rank}));
  }
  return out;
}

base::Result<std::vector<std::string>> PmixServer::environment_of(ProcId process) const {
  const pmix_proc_t proc = make_proc(state_->name_of(process.space), process.rank);
  char** strings = nullptr;
  const pmix_status_t status = state_->library.server_setup_fork(&proc, &strings);
  const std::unique_ptr<char*, FreeStrings> owned(strings);
  if (status != PMIX_SUCCESS)
    return state_->library.error("server_setup_fork", proc.nspace, status);
  std::vector<std::string> out;
  for (char** string = strings; string != nullptr && *string != nullptr; ++string)
    out.emplace_back(*string);
  out.emplace_back("OMPI_MCA_schizo=flux");  // otherwise Open MPI 4.1 starts as a singleton
  if (const auto programs = state_->programs.find(process.space);
      programs != state_->programs.end())
    std::ranges::copy(programs->second, std::back_inserter(out));
  return out;
}

// libpmix answers on its own thread.
void PmixServer::fetch(ProcId of, PmixEvents::OnFetched then) {
  struct Request {
    boost::asio::io_context& loop;
    PmixEvents::OnFetched then;
  };
  const auto answer = [](pmix_status_t status, char* bytes, std::size_t size, void* data) {
    const std::unique_ptr<Request> request(static_cast<Request*>(data));
    const auto* begin = reinterpret_cast<const std::byte*>(bytes);
    boost::asio::post(request->loop,
                      [then = std::move(request->then), status,
                       copy = std::vector<std::byte>(begin, begin + size)]() mutable {
                        then(status, std::move(copy));
                      });
  };
  const pmix_proc_t proc = make_proc(state_->name_of(of.space), of.rank);
  auto request = std::make_unique<Request>(Request{state_->loop, std::move(then)});
  const pmix_status_t status = state_->library.server_dmodex_request(&proc, answer, request.get());
  if (status == PMIX_SUCCESS) {
    static_cast<void>(request.release());  // `answer` owns it
  } else {
    request->then(status, {});
  }
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): a copy goes into a waiting look-up
void PmixServer::names(const NameCall& call, PmixEvents::OnFetched then) {
  const pmix_proc_t owner = make_proc(state_->name_of(call.from.space), call.from.rank);
  auto arguments = NameArguments::unpack(state_->library, call.data);
  if (!arguments.ok()) return then(PMIX_ERR_BAD_PARAM, {});
  const std::vector<pmix_info_t>& infos = arguments->infos();
  if (call.operation == NameOperation::kPublish) {
    then(state_->board.publish(owner, infos.data(), infos.size(), {call.host, call.data.size()}),
         {});
  } else if (call.operation == NameOperation::kUnpublish) {
    then(state_->board.unpublish(owner, arguments->keys()), {});
  } else {
    state_->board.lookup(owner, arguments->keys(), infos.data(), infos.size(),
                         [this, then](pmix_status_t status, std::vector<pmix_pdata_t>& found) {
                           auto packed = pack_found(state_->library, found);
                           if (!packed.ok()) return then(PMIX_ERR_PACK_FAILURE, {});
                           then(status, std::move(*packed));
                         },
                         {call.host, call.data.size()});
  }
}

void PmixServer::close_space(std::uint32_t space) {
  state_->spaces.erase(space);
  state_->programs.erase(space);
  const pmix_proc_t proc = make_proc(state_->name_of(space), PMIX_RANK_WILDCARD);
  state_->board.close(proc.nspace);
  state_->library.server_deregister_nspace(proc.nspace, nullptr, nullptr);
  std::error_code ignored;
  std::filesystem::remove_all(fmt::format("{}/{}", state_->options.folder, space), ignored);
}

void PmixServer::member_gone(const MemberGone& gone) {
  const pmix_proc_t proc = make_proc(state_->name_of(gone.process.space), gone.process.rank);
  state_->board.forget(proc);
  if (!gone.failed) return;
  InfoList infos(state_->library);
  infos.add(PMIX_EVENT_AFFECTED_PROC, proc);
  infos.add(PMIX_EVENT_NON_DEFAULT, true);
  for (const pmix_status_t code :
       {PMIX_ERR_PROC_ABORTED,
        gone.signal != 0 ? PMIX_ERR_PROC_ABORTED_BY_SIG : PMIX_ERR_PROC_TERM_WO_SYNC}) {
    state_->library.Notify_event(code, &proc, PMIX_RANGE_LOCAL, infos.data(), infos.size(), nullptr,
                                 nullptr);
  }
}

}  // namespace regroup::pmi
