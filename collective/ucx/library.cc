// Loads libucp and opens contexts. UCX reads its environment when it is loaded. Three variables
// keep it from disturbing the program: UCX_ERROR_SIGNALS (else it handles SIGSEGV and similar
// signals), UCX_MEM_EVENTS (else it patches mmap and similar functions), UCX_LOG_LEVEL (else it
// prints the deaths of peers, which the coordinator handles).
#include "collective/ucx/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "collective/ucx/listener.h"

namespace regroup::collective::ucx {
namespace {

using base::Code;
using base::Result;
using base::Status;

constexpr const char* kLibrary = "libucp.so.0";
constexpr const char* kNoSharedMemory = "^posix,sysv";
// Why these settings. Messages are sent eagerly and without copies, so a completed send has left
// this process. UCX's rendezvous protocol and flush would wait until the receiver progresses its
// worker; over TCP both are PUTs, and if the acknowledgement of a PUT meets a closed endpoint, UCX
// aborts the process (tcp_ep.c: PUT_TX_WAITING_ACK). Segments of 512 KiB hold a message of a whole
// chunk, which UCX's default of 64 KiB would split; and UCX reuses their receive buffers, while it
// allocates new pages for messages that it reassembles. connect() must not block, or a host that is
// lost meanwhile holds the caller for more than 70 s. Up to UCX 1.13, the names of transport
// variables lack the name of the transport (openucx/ucx#8649).
struct Default {
  const char* variable;  // the variable by which the user overrides this setting
  const char* key;
  const char* value;
};
constexpr Default kDefaults[] = {{"UCX_RNDV_THRESH", "RNDV_THRESH", "inf"},
                                 {"UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "0"},
                                 {"UCX_TCP_RX_SEG_SIZE", "TCP_RX_SEG_SIZE", "512k"},
                                 {"UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "512k"},
                                 {"UCX_TCP_CONN_NB", "TCP_CONN_NB", "y"},
                                 {"UCX_TCP_CONN_NB", "CONN_NB", "y"}};

// If UCX has only TCP, a connection must use the network of its address; otherwise UCX would choose
// the fastest network, which may be filtered. With RDMA, UCX's choice is right even for Ethernet
// addresses.
constexpr Default kByTheWayCalled{"UCX_CM_USE_ALL_DEVICES", "CM_USE_ALL_DEVICES", "n"};

// `list`: the value of UCX_TLS.
bool has_tcp_alone(const std::string& list) {
  constexpr std::string_view kOthers = ",tcp,self,sm,shm,mm,posix,sysv,cma,xpmem,knem,";
  bool alone = !list.empty() && !list.starts_with('^');
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');)
    alone = alone && kOthers.find("," + word + ",") != std::string_view::npos;
  std::error_code error;
  const std::filesystem::directory_iterator rdma("/sys/class/infiniband", error);
  return alone || error || rdma == std::filesystem::directory_iterator();
}

// A variable of UCX's environment; empty if it is not set.
std::string value_of(const std::string& name) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (text.starts_with(name + "=")) return text.substr(name.size() + 1);
  }
  return {};
}

// Sets an environment variable for the lifetime of the object, unless the user has set it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name), was_set_(!value_of(name).empty()) {
    if (!was_set_) ::setenv(name, value, 1);
  }
  ~Variable() {
    if (!was_set_) ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  const bool was_set_;
};

// The value of UCX_`key` that the user or the program has set.
std::string setting(const UcxSettings& settings, const std::string& key) {
  std::string out = value_of("UCX_" + key);
  for (const auto& [name, value] : settings.config) {
    if (name == key) out = value;
  }
  return out;
}

// True if the value of UCX_TLS allows the shared-memory transport `transport`.
bool uses(std::string list, const std::string& transport) {
  const bool all_but = list.starts_with('^');
  if (all_but) list.erase(0, 1);
  const auto has = [&](const std::string& word) {
    return ("," + list + ",").find("," + word + ",") != std::string::npos;
  };
  const bool named = has("all") || has("sm") || has("shm") || has("mm") || has(transport);
  return all_but ? !named : named || list.empty();
}

// A write to a peer that is gone must fail instead of raising SIGPIPE.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
}

Result<Ucp> load() {
  const Variable signals("UCX_ERROR_SIGNALS", "");
  const Variable events("UCX_MEM_EVENTS", "n");
  const Variable log("UCX_LOG_LEVEL", "fatal");
  void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return base::unavailable(
        fmt::format("not viable: no libucp; the Debian package libucx0 has it: {}", ::dlerror()));
  }
  Ucp out;
  const char* missing = nullptr;
#define REGROUP_UCP_FIND(name)                                             \
  out.name = reinterpret_cast<decltype(out.name)>(::dlsym(handle, #name)); \
  if (out.name == nullptr) missing = #name;
  REGROUP_UCP_FUNCTIONS(REGROUP_UCP_FIND)
#undef REGROUP_UCP_FIND
  if (missing == nullptr) return out;
  return base::unavailable(fmt::format(
      "not viable: {} has no function {}; expected UCX 1.11 or later", kLibrary, missing));
}

}  // namespace

// Once: a second load would change the environment while threads that have passed the first one
// read it.
Result<Ucp> load_ucp() {
  static const Result<Ucp> kLoaded = load();
  return kLoaded;
}

Result<std::shared_ptr<const UcxContext>> UcxContext::open(const UcxSettings& settings) {
  REGROUP_ASSIGN_OR_RETURN(auto ucp, load_ucp());
  ignore_broken_pipes();
  const auto failed = [&](const std::string& call, ucs_status_t status) {
    return base::unavailable(fmt::format("{}: {}", call, ucp.ucs_status_string(status)));
  };
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp.ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return failed("ucp_config_read", status);
  const std::unique_ptr<ucp_config_t, decltype(ucp.ucp_config_release)> release(
      config, ucp.ucp_config_release);
  const auto set = [&](const char* key, const char* value) {
    static_cast<void>(ucp.ucp_config_modify(config, key, value));
  };
  for (const auto& [variable, key, value] : kDefaults) {
    if (value_of(variable).empty()) set(key, value);
  }
  // Members of one host communicate through the arena. With UCX's shared-memory transports, each
  // worker would create a file in /dev/shm and unlink it a moment later; a process killed in
  // between would leave the file behind.
  std::string list = setting(settings, "TLS");
  if (has_tcp_alone(list) && value_of(kByTheWayCalled.variable).empty())
    set(kByTheWayCalled.key, kByTheWayCalled.value);
  if (list.empty() && ucp.ucp_config_modify(config, "TLS", kNoSharedMemory) == UCS_OK)
    list = kNoSharedMemory;
  // Without these variables, shared-memory transports do not report the death of a peer. They are
  // not set otherwise, because UCX warns about variables that it does not use.
  if (uses(list, "posix")) set("POSIX_ERROR_HANDLING", "y");
  if (uses(list, "sysv")) set("SYSV_ERROR_HANDLING", "y");
  if (uses(list, "posix") || uses(list, "sysv")) set("ERROR_HANDLING", "y");
  for (const auto& [name, value] : settings.config) {
    status = ucp.ucp_config_modify(config, name.c_str(), value.c_str());
    if (status != UCS_OK)
      return failed(fmt::format("ucp_config_modify({}={})", name, value), status);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  status = ucp.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
  if (status != UCS_OK) return failed("ucp_init", status);
  REGROUP_ASSIGN_OR_RETURN(auto listener,
                           Listener::open(ucp, context, setting(settings, "NET_DEVICES"),
                                          setting(settings, "TCP_PORT_RANGE")));
  return std::shared_ptr<const UcxContext>(
      std::make_shared<UcxContext>(ucp, context, std::move(listener), settings.probe_interval));
}

UcxContext::UcxContext(const Ucp& ucp, ucp_context_h handle, std::unique_ptr<Listener> listener,
                       base::Duration probe_interval)
    : ucp_(ucp), handle_(handle), listener_(std::move(listener)), probe_interval_(probe_interval) {}

// The listener leaks on purpose: threads of UCX may still use it.
UcxContext::~UcxContext() { static_cast<void>(listener_.release()); }

}  // namespace regroup::collective::ucx
