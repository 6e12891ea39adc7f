// libpmix calls on its own thread; each call is posted to the loop. The arguments are still valid
// there: libpmix keeps them until the callback.
#include "tools/pmi/pmix_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string_view>

#include "tools/pmi/pmix_names.h"
#include "tools/pmi/pmix_state.h"

namespace regroup::pmi {
namespace {

constexpr std::size_t kMostHosts = std::size_t{1} << 20;  // host numbers of a job are lower

// libpmix passes no user pointer to these functions, so there is one server per process.
std::atomic<PmixState*> g_server{nullptr};

bool has_key(const char* key, const char* name) {
  return std::strncmp(key, name, PMIX_MAX_KEYLEN) == 0;
}

std::vector<std::string> strings(char* const* array) {
  std::vector<std::string> out;
  for (; array != nullptr && *array != nullptr; ++array) out.emplace_back(*array);
  return out;
}

void free_bytes(void* bytes) { std::free(bytes); }
void free_infos(void* infos) { delete static_cast<InfoList*>(infos); }

SpawnApp app_of(const pmix_app_t& in) {
  SpawnApp app{in.cmd == nullptr ? "" : in.cmd, strings(in.argv), strings(in.env),
               in.cwd == nullptr ? "" : in.cwd, static_cast<std::uint32_t>(in.maxprocs)};
  if (!app.arguments.empty()) app.arguments.erase(app.arguments.begin());  // the command again
  for (std::size_t i = 0; i < in.ninfo; ++i) {
    const pmix_value_t& value = in.info[i].value;
    if (has_key(in.info[i].key, PMIX_WDIR) && value.type == PMIX_STRING)
      app.wdir = value.data.string;
  }
  return app;
}

std::vector<std::uint32_t> spaces_of(const PmixState& server, const pmix_proc_t* procs,
                                     std::size_t count) {
  std::set<std::uint32_t> spaces;
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto process = server.proc_id_of(procs[i])) spaces.insert(process->space);
  }
  return {spaces.begin(), spaces.end()};
}

void tell_disconnected(const PmixState& server, const pmix_proc_t* procs, std::size_t count) {
  auto spaces = spaces_of(server, procs, count);
  if (spaces.size() > 1) server.events.groups_disconnected(std::move(spaces));
}

char* copied(std::string_view bytes) {
  if (bytes.empty()) return nullptr;
  auto* copy = static_cast<char*>(std::malloc(bytes.size()));
  std::memcpy(copy, bytes.data(), bytes.size());
  return copy;
}

// Calls `then` with the data of all hosts of the processes. If that is this host alone, these are
// `bytes`.
void together(PmixState& server, std::string what, const pmix_proc_t* procs, std::size_t count,
              std::string_view bytes, const std::function<void(std::string_view)>& then) {
  auto hosts = server.hosts_of(procs, count);
  if (hosts.size() < 2) return then(bytes);
  for (std::size_t i = 0; i < count; ++i)
    what += fmt::format(" {}:{}", procs[i].nspace, procs[i].rank);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  server.events.gather(spaces_of(server, procs, count).at(0), what, std::move(hosts),
                       {begin, begin + bytes.size()}, [then](const std::vector<std::byte>& all) {
                         then({reinterpret_cast<const char*>(all.data()), all.size()});
                       });
}

// What a host contributes to a new group: the number that it would give the group, and the data of
// its members, as libpmix packed it. No host offers a number twice, and no two hosts offer the
// same, so all groups have different numbers, even if threads of one rank make them at once.
std::string group_part(PmixState& server, const pmix_info_t* directives, std::size_t count) {
  std::string_view data;
  for (std::size_t i = 0; i < count; ++i) {
    if (!has_key(directives[i].key, PMIX_GROUP_ENDPT_DATA)) continue;
    data = {directives[i].value.data.bo.bytes, directives[i].value.data.bo.size};
  }
  const std::size_t number = ++server.contexts * kMostHosts + server.options.host;
  return fmt::format("{} {} {}", number, data.size(), data);
}

struct GroupFacts {
  std::size_t context = 0;  // its number
  std::string data;         // of the members
};

// Reads the parts of all hosts, as group_part() has made them, up to the first malformed one.
// libpmix takes the data of several hosts one after the other. All hosts choose the highest number.
GroupFacts facts_of(std::string_view parts) {
  GroupFacts facts;
  const auto number = [&parts](std::size_t& out) {
    const auto [end, error] = std::from_chars(parts.data(), parts.data() + parts.size(), out);
    const bool good = error == std::errc() && end != parts.data() + parts.size() && *end == ' ';
    if (good) parts.remove_prefix(static_cast<std::size_t>(end - parts.data()) + 1);
    return good;
  };
  std::size_t context = 0;
  std::size_t size = 0;
  while (number(context) && number(size) && size <= parts.size()) {
    facts.context = std::max(facts.context, context);
    facts.data += parts.substr(0, size);
    parts.remove_prefix(size);
  }
  return facts;
}

// What the members of a new group receive: its number, their data and their identifiers.
void describe_group(InfoList& infos, const std::vector<pmix_proc_t>& members,
                    const pmix_info_t* directives, std::size_t count, GroupFacts& facts) {
  for (std::size_t i = 0; i < count; ++i) {
    if (has_key(directives[i].key, PMIX_GROUP_ASSIGN_CONTEXT_ID))
      infos.add(PMIX_GROUP_CONTEXT_ID, facts.context);
  }
  if (!facts.data.empty())
    infos.add(PMIX_GROUP_ENDPT_DATA, pmix_byte_object_t{facts.data.data(), facts.data.size()});
  infos.add(PMIX_GROUP_MEMBERSHIP, members);
}

}  // namespace

struct PmixCalls {
  // Runs `work(server)` on the loop.
  template <class Work>
  static pmix_status_t hand_over(Work work) {
    PmixState* server = g_server.load();
    if (server == nullptr) return PMIX_ERR_NOT_AVAILABLE;
    boost::asio::post(server->loop, [server, work = std::move(work)] { work(*server); });
    return PMIX_SUCCESS;
  }

  static pmix_status_t done(pmix_op_cbfunc_t then, void* data) {
    return hand_over([=](PmixState&) {
      if (then != nullptr) then(PMIX_SUCCESS, data);
    });
  }

  static pmix_status_t connected(const pmix_proc_t* proc, void*, pmix_info_t*, std::size_t,
                                 pmix_op_cbfunc_t then, void* data) {
    return hand_over([proc = *proc, then, data](PmixState& server) {
      if (const auto process = server.proc_id_of(proc)) server.events.connected(*process);
      if (then != nullptr) then(PMIX_SUCCESS, data);
    });
  }

  static pmix_status_t finalized(const pmix_proc_t* proc, void*, pmix_op_cbfunc_t then,
                                 void* data) {
    return hand_over([proc = *proc, then, data](PmixState& server) {
      if (const auto process = server.proc_id_of(proc)) server.events.finalized(*process);
      if (then != nullptr) then(PMIX_SUCCESS, data);
    });
  }

  static pmix_status_t abort(const pmix_proc_t* proc, void*, int status, const char* message,
                             pmix_proc_t*, std::size_t, pmix_op_cbfunc_t then, void* data) {
    return hand_over([proc = *proc, status, text = std::string(message == nullptr ? "" : message),
                      then, data](PmixState& server) {
      if (const auto process = server.proc_id_of(proc))
        server.events.aborted(*process, status, text);
      if (then != nullptr) then(PMIX_SUCCESS, data);
    });
  }

  // MPI_Comm_disconnect of Open MPI 4 and 5 is a fence, and no other fence of theirs goes over
  // several spaces.
  static pmix_status_t fence(const pmix_proc_t* procs, std::size_t count, const pmix_info_t*,
                             std::size_t, char* bytes, std::size_t size, pmix_modex_cbfunc_t then,
                             void* data) {
    return hand_over([=](PmixState& server) {
      together(server, "fence", procs, count, {bytes, size}, [=, &server](std::string_view all) {
        tell_disconnected(server, procs, count);
        char* copy = copied(all);
        then(PMIX_SUCCESS, copy, all.size(), data, free_bytes, copy);
      });
      std::free(bytes);
    });
  }

  // libpmix calls it for processes of other hosts only.
  static pmix_status_t direct_modex(const pmix_proc_t* proc, const pmix_info_t*, std::size_t,
                                    pmix_modex_cbfunc_t then, void* data) {
    return hand_over([=, proc = *proc](PmixState& server) {
      const auto process = server.proc_id_of(proc);
      if (!process || server.hosts_of(&proc, 1).empty())
        return then(PMIX_ERR_NOT_FOUND, nullptr, 0, data, nullptr, nullptr);
      server.events.fetch(*process, [=](std::int32_t status, const std::vector<std::byte>& bytes) {
        char* copy = copied({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        then(status, copy, bytes.size(), data, free_bytes, copy);
      });
    });
  }

  static pmix_status_t publish(const pmix_proc_t* proc, const pmix_info_t* infos, std::size_t count,
                               pmix_op_cbfunc_t then, void* data) {
    return hand_over([=, proc = *proc](PmixState& server) {
      if (server.keeps_names()) return then(server.board.publish(proc, infos, count), data);
      ask_names(server, NameOperation::kPublish, proc, {}, infos, count,
                [=](pmix_status_t status, const std::vector<std::byte>&) { then(status, data); });
    });
  }

  static pmix_status_t lookup(const pmix_proc_t* proc, char** keys, const pmix_info_t* infos,
                              std::size_t count, pmix_lookup_cbfunc_t then, void* data) {
    return hand_over([=, proc = *proc](PmixState& server) {
      const auto answer = [=](pmix_status_t status, std::vector<pmix_pdata_t>& found) {
        then(status, found.data(), found.size(), data);
      };
      if (server.keeps_names())
        return server.board.lookup(proc, strings(keys), infos, count, answer);
      ask_names(server, NameOperation::kLookup, proc, strings(keys), infos, count,
                [answer, &server](pmix_status_t status, const std::vector<std::byte>& packed) {
                  with_found(server.library, packed,
                             [&](std::vector<pmix_pdata_t>& found) { answer(status, found); });
                });
    });
  }

  static pmix_status_t unpublish(const pmix_proc_t* proc, char** keys, const pmix_info_t*,
                                 std::size_t, pmix_op_cbfunc_t then, void* data) {
    return hand_over([=, proc = *proc](PmixState& server) {
      if (server.keeps_names()) return then(server.board.unpublish(proc, strings(keys)), data);
      ask_names(server, NameOperation::kUnpublish, proc, strings(keys), nullptr, 0,
                [=](pmix_status_t status, const std::vector<std::byte>&) { then(status, data); });
    });
  }

  // Asks the first host of the job.
  static void ask_names(PmixState& server, NameOperation operation, const pmix_proc_t& proc,
                        const std::vector<std::string>& keys, const pmix_info_t* infos,
                        std::size_t count, PmixEvents::OnFetched then) {
    const auto process = server.proc_id_of(proc);
    auto call = pack_name_call(server.library, keys, infos, count);
    if (!process || !call.ok()) return then(PMIX_ERR_BAD_PARAM, {});
    server.events.ask_names(operation, *process, std::move(*call), std::move(then));
  }

  static pmix_status_t spawn(const pmix_proc_t* proc, const pmix_info_t*, std::size_t,
                             const pmix_app_t* apps, std::size_t count, pmix_spawn_cbfunc_t then,
                             void* data) {
    return hand_over([=, proc = *proc](PmixState& server) {
      std::vector<SpawnApp> wanted;
      for (std::size_t i = 0; i < count; ++i) wanted.push_back(app_of(apps[i]));
      const auto process = server.proc_id_of(proc);
      if (!process) return then(PMIX_ERR_BAD_PARAM, nullptr, data);
      server.events.spawn(*process, std::move(wanted),
                          [&server, then, data](base::Result<std::uint32_t> space) {
                            if (!space.ok())
                              return then(PMIX_ERR_JOB_FAILED_TO_LAUNCH, nullptr, data);
                            std::string name = server.name_of(*space);
                            then(PMIX_SUCCESS, name.data(), data);
                          });
    });
  }

  static pmix_status_t connect(const pmix_proc_t* procs, std::size_t count, const pmix_info_t*,
                               std::size_t, pmix_op_cbfunc_t then, void* data) {
    return hand_over([=](PmixState& server) {
      together(server, "connect", procs, count, {}, [=, &server](std::string_view) {
        if (auto spaces = spaces_of(server, procs, count); spaces.size() > 1)
          server.events.groups_connected(std::move(spaces));
        then(PMIX_SUCCESS, data);
      });
    });
  }

  static pmix_status_t disconnect(const pmix_proc_t* procs, std::size_t count, const pmix_info_t*,
                                  std::size_t, pmix_op_cbfunc_t then, void* data) {
    return hand_over([=](PmixState& server) {
      together(server, "disconnect", procs, count, {}, [=, &server](std::string_view) {
        tell_disconnected(server, procs, count);
        then(PMIX_SUCCESS, data);
      });
    });
  }

  static pmix_status_t register_events(pmix_status_t*, std::size_t, const pmix_info_t*, std::size_t,
                                       pmix_op_cbfunc_t then, void* data) {
    return done(then, data);
  }

  static pmix_status_t deregister_events(pmix_status_t*, std::size_t, pmix_op_cbfunc_t then,
                                         void* data) {
    return done(then, data);
  }

  static pmix_status_t notify_event(pmix_status_t, const pmix_proc_t*, pmix_data_range_t,
                                    pmix_info_t*, std::size_t, pmix_op_cbfunc_t then, void* data) {
    return done(then, data);
  }

  // MPI sessions ask for process sets: there are only those of MPI itself.
  static pmix_status_t query(pmix_proc_t*, pmix_query_t* queries, std::size_t count,
                             pmix_info_cbfunc_t then, void* data) {
    return hand_over([=](PmixState& server) {
      auto* infos = new InfoList(server.library);
      for (std::size_t i = 0; i < count; ++i) {
        for (const std::string& key : strings(queries[i].keys)) {
          if (key == PMIX_QUERY_NUM_PSETS) infos->add(PMIX_QUERY_NUM_PSETS, std::size_t{0});
          if (key == PMIX_QUERY_PSET_NAMES) infos->add(PMIX_QUERY_PSET_NAMES, std::string());
        }
      }
      const pmix_status_t status = infos->size() > 0 ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND;
      then(status, infos->data(), infos->size(), data, free_infos, infos);
    });
  }

  static pmix_status_t job_control(const pmix_proc_t*, const pmix_proc_t*, std::size_t,
                                   const pmix_info_t*, std::size_t, pmix_info_cbfunc_t then,
                                   void* data) {
    return hand_over([=](PmixState&) { then(PMIX_SUCCESS, nullptr, 0, data, nullptr, nullptr); });
  }

  // A group of MPI_Comm_create_from_group gets a number and the data of its members on all hosts.
  // The end of a group is answered at once, since this server keeps no groups; libpmix 5.0 would
  // ask twice if the answer came later.
  static pmix_status_t group(pmix_group_operation_t operation, char* name, const pmix_proc_t* procs,
                             std::size_t nprocs, const pmix_info_t* directives, std::size_t count,
                             pmix_info_cbfunc_t then, void* data) {
    if (operation != PMIX_GROUP_CONSTRUCT) return PMIX_OPERATION_SUCCEEDED;
    return hand_over([=, name = std::string(name)](PmixState& server) {
      together(server, kGroup + name, procs, nprocs, group_part(server, directives, count),
               [=, &server](std::string_view parts) {
                 auto* infos = new InfoList(server.library);
                 GroupFacts facts = facts_of(parts);
                 describe_group(*infos, {procs, procs + nprocs}, directives, count, facts);
                 then(PMIX_SUCCESS, infos->data(), infos->size(), data, free_infos, infos);
               });
    });
  }
};

pmix_server_module_t pmix_calls(PmixState* server) {
  g_server = server;
  pmix_server_module_t calls{};
  calls.client_connected2 = PmixCalls::connected;
  calls.client_finalized = PmixCalls::finalized;
  calls.abort = PmixCalls::abort;
  calls.fence_nb = PmixCalls::fence;
  calls.direct_modex = PmixCalls::direct_modex;
  calls.publish = PmixCalls::publish;
  calls.lookup = PmixCalls::lookup;
  calls.unpublish = PmixCalls::unpublish;
  calls.spawn = PmixCalls::spawn;
  calls.connect = PmixCalls::connect;
  calls.disconnect = PmixCalls::disconnect;
  calls.register_events = PmixCalls::register_events;
  calls.deregister_events = PmixCalls::deregister_events;
  calls.notify_event = PmixCalls::notify_event;
  calls.query = PmixCalls::query;
  calls.job_control = PmixCalls::job_control;
  calls.group = PmixCalls::group;
  return calls;
}

}  // namespace regroup::pmi
