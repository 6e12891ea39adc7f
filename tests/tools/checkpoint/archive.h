// Makes small zip archives and NumPy arrays, valid and invalid.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace regroup::checkpoint_tool {

template <class T>
void put_le(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The fields of a local and of a central record between the version and the length of the extra
// field.
inline void put_fields(std::string* out, const std::string& name, const std::string& content) {
  out->append(8, '\0');  // flags, method: stored, time, date
  put_le(out, static_cast<std::uint32_t>(
                  ::crc32(0, reinterpret_cast<const Bytef*>(content.data()), content.size())));
  put_le(out, static_cast<std::uint32_t>(content.size()));
  put_le(out, static_cast<std::uint32_t>(content.size()));
  put_le(out, static_cast<std::uint16_t>(name.size()));
  put_le(out, std::uint16_t{0});
}

// An archive of members {name, content}. The content of the first `stored` is there; members after
// them say that theirs is the content of the first.
inline std::string archive_of(const std::vector<std::pair<std::string, std::string>>& members,
                              std::size_t stored = SIZE_MAX) {
  std::string out, directory;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto& [name, content] = members[i];
    const auto offset = static_cast<std::uint32_t>(i < stored ? out.size() : 0);
    if (i < stored) {
      out += std::string("PK\3\4\x14\0", 6);
      put_fields(&out, name, content);
      out += name + content;
    }
    directory += std::string("PK\1\2\x14\0\x14\0", 8);
    put_fields(&directory, name, content);
    directory.append(10, '\0');  // comment, disk, attributes
    put_le(&directory, offset);
    directory += name;
  }
  const auto begin = static_cast<std::uint32_t>(out.size());
  out += directory + std::string("PK\5\6\0\0\0\0", 8);
  put_le(&out, static_cast<std::uint16_t>(members.size()));
  put_le(&out, static_cast<std::uint16_t>(members.size()));
  put_le(&out, static_cast<std::uint32_t>(directory.size()));
  put_le(&out, begin);
  put_le(&out, std::uint16_t{0});
  return out;
}

// A .npy file, version 1, of `data` bytes.
inline std::string array_of(const std::string& descr, const std::string& shape, std::size_t data) {
  const std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  std::string out("\x93NUMPY\1\0", 8);
  put_le(&out, static_cast<std::uint16_t>(header.size()));
  return out + header + std::string(data, 'x');
}

}  // namespace regroup::checkpoint_tool
