// libpmix, loaded on first use, so that everything else works without it. This is compiled against
// its headers (4.2) and calls it through a table of functions; the program does not link it.
#pragma once

#include <pmix.h>
#include <pmix_server.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace regroup::pmi {

// The names of the functions that are looked up.
#define REGROUP_PMIX_FUNCTIONS(X) \
  X(Get_version)                  \
  X(Error_string)                 \
  X(Info_load)                    \
  X(Value_xfer)                   \
  X(Value_destruct)               \
  X(Data_pack)                    \
  X(Data_unpack)                  \
  X(Notify_event)                 \
  X(generate_regex)               \
  X(generate_ppn)                 \
  X(server_init)                  \
  X(server_register_nspace)       \
  X(server_deregister_nspace)     \
  X(server_register_client)       \
  X(server_dmodex_request)        \
  X(server_setup_fork)

struct PmixLibrary {
#define REGROUP_PMIX_POINTER(name) \
  decltype(&::PMIx_##name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a declared name
  REGROUP_PMIX_FUNCTIONS(REGROUP_PMIX_POINTER)
#undef REGROUP_PMIX_POINTER

  // The library stays loaded until the process ends. kNotFound has the loader's message.
  [[nodiscard]] static base::Result<PmixLibrary> load(const std::string& file);
  // "PMIx_CALL(OBJECT): its reason".
  [[nodiscard]] base::Status error(const char* call, const std::string& object,
                                   pmix_status_t status) const;
};

[[nodiscard]] pmix_proc_t make_proc(const std::string& space, pmix_rank_t rank);

// An array of pmix_info_t that owns copies of its values.
class InfoList {
 public:
  explicit InfoList(const PmixLibrary& library) : library_(library) {}
  ~InfoList();
  InfoList(const InfoList&) = delete;
  InfoList& operator=(const InfoList&) = delete;

  void add(const char* key, const std::string& value) { load(key, value.c_str(), PMIX_STRING); }
  void add(const char* key, bool value) { load(key, &value, PMIX_BOOL); }
  void add(const char* key, std::uint32_t value) { load(key, &value, PMIX_UINT32); }
  void add(const char* key, std::size_t value) { load(key, &value, PMIX_SIZE); }
  void add(const char* key, const pmix_proc_t& value) { load(key, &value, PMIX_PROC); }
  void add(const char* key, const std::vector<pmix_proc_t>& values);
  void add(const char* key, InfoList& values);
  void add(const char* key, const pmix_byte_object_t& value) {
    load(key, &value, PMIX_BYTE_OBJECT);
  }
  void add_small(const char* key, std::uint16_t value) { load(key, &value, PMIX_UINT16); }
  void add_rank(const char* key, pmix_rank_t value) { load(key, &value, PMIX_PROC_RANK); }
  void add_regex(const char* key, const char* value) { load(key, value, PMIX_REGEX); }

  [[nodiscard]] pmix_info_t* data() { return infos_.data(); }
  [[nodiscard]] std::size_t size() const { return infos_.size(); }

 private:
  void load(const char* key, const void* value, pmix_data_type_t type);

  const PmixLibrary& library_;
  std::vector<pmix_info_t> infos_;
};

}  // namespace regroup::pmi
