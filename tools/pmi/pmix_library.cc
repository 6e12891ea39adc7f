// Loads libpmix with dlopen.
#include "tools/pmi/pmix_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

namespace regroup::pmi {

base::Result<PmixLibrary> PmixLibrary::load(const std::string& file) {
  void* handle = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return base::not_found(::dlerror());
  PmixLibrary library;
  const char* missing = nullptr;
#define REGROUP_PMIX_FIND(name)                                                            \
  library.name = reinterpret_cast<decltype(library.name)>(::dlsym(handle, "PMIx_" #name)); \
  if (library.name == nullptr) missing = "PMIx_" #name;
  REGROUP_PMIX_FUNCTIONS(REGROUP_PMIX_FIND)
#undef REGROUP_PMIX_FIND
  if (missing != nullptr) {
    return base::not_found(fmt::format("{} has no function {}", file, missing));
  }
  return library;
}

base::Status PmixLibrary::error(const char* call, const std::string& object,
                                pmix_status_t status) const {
  return base::internal_error(fmt::format("PMIx_{}({}): {}", call, object, Error_string(status)));
}

pmix_proc_t make_proc(const std::string& space, pmix_rank_t rank) {
  pmix_proc_t proc{};
  std::strncpy(proc.nspace, space.c_str(), PMIX_MAX_NSLEN);
  proc.rank = rank;
  return proc;
}

InfoList::~InfoList() {
  for (pmix_info_t& info : infos_) library_.Value_destruct(&info.value);
}

void InfoList::load(const char* key, const void* value, pmix_data_type_t type) {
  infos_.emplace_back();
  library_.Info_load(&infos_.back(), key, value, type);
}

void InfoList::add(const char* key, const std::vector<pmix_proc_t>& values) {
  pmix_data_array_t array{PMIX_PROC, values.size(), const_cast<pmix_proc_t*>(values.data())};
  load(key, &array, PMIX_DATA_ARRAY);
}

void InfoList::add(const char* key, InfoList& values) {
  pmix_data_array_t array{PMIX_INFO, values.size(), values.data()};
  load(key, &array, PMIX_DATA_ARRAY);
}

}  // namespace regroup::pmi
