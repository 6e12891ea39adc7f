// Lines are written with fmt, so that equal values have equal bytes, and read as JSON: a file may
// be damaged or of another program.
#include "elastic/ledger_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "base/crc32c.h"
#include "base/json_input.h"

namespace regroup::elastic {
namespace {

using base::Result;
using base::Status;
using Json = nlohmann::json;

constexpr const char* kFormat = "regroup ledger";

Status damaged(const std::string& why) { return base::data_loss(why); }

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

// Reads the fields of an object and remembers the first fault.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  std::uint64_t number(const char* name, std::uint64_t least, std::uint64_t most) {
    const Json* value = find(name);
    if (value == nullptr) return least;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < least ||
        value->get<std::uint64_t>() > most)
      return fail(fmt::format("{}: expected a whole number from {} to {}", name, least, most)),
             least;
    return value->get<std::uint64_t>();
  }
  bool flag(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return fail(fmt::format("{}: expected true or false", name)), false;
    return value->get<bool>();
  }
  std::string text(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return "";
    if (!value->is_string()) return fail(fmt::format("{}: expected a text", name)), "";
    return value->get<std::string>();
  }
  const Json* find(const char* name) {
    found_ += 1;
    const auto at = json_.find(name);
    if (at != json_.end()) return &*at;
    fail(fmt::format("{} is missing", name));
    return nullptr;
  }
  void fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }
  [[nodiscard]] Status end() const {
    if (!why_.empty()) return damaged(why_);
    return found_ == json_.size() ? Status() : damaged("it has unknown fields");
  }

 private:
  const Json& json_;
  std::size_t found_ = 0;
  std::string why_;
};

Result<Json> parse_object(std::string_view text) {
  Json json = base::parse_json(text);
  if (json.is_discarded() || !json.is_object()) return damaged("it is not a JSON object");
  return json;
}

// [16,"9ae41c22"], or {"times":2}.
std::string text_of(const LeafRecord& leaf) {
  if (leaf.times != 1) return fmt::format("{{\"times\":{}}}", leaf.times);
  return fmt::format("[{},\"{:08x}\"]", leaf.samples, leaf.crc);
}

bool parse_crc(const Json& json, std::uint32_t* crc) {
  const auto* text = json.get_ptr<const std::string*>();
  if (text == nullptr || text->size() != 8) return false;
  const auto [end, error] = std::from_chars(text->data(), text->data() + 8, *crc, 16);
  return error == std::errc() && end == text->data() + 8 && fmt::format("{:08x}", *crc) == *text;
}

bool parse_leaf(const Json& json, LeafRecord* leaf) {
  if (json.is_object()) {
    Fields fields(json);
    leaf->times = static_cast<std::uint32_t>(fields.number("times", 0, UINT32_MAX));
    return fields.end().ok() && leaf->times != 1;
  }
  if (!json.is_array() || json.size() != 2 || !json[0].is_number_unsigned()) return false;
  leaf->samples = json[0].get<std::uint64_t>();
  return parse_crc(json[1], &leaf->crc);
}

}  // namespace

std::uint32_t samples_crc(std::span<const std::uint64_t> samples, std::uint32_t crc) {
  std::array<std::byte, 512> bytes;
  while (!samples.empty()) {
    const auto part = samples.first(std::min(samples.size(), bytes.size() / 8));
    std::byte* to = bytes.data();
    for (const std::uint64_t sample : part) {
      for (int shift = 0; shift < 64; shift += 8) *to++ = static_cast<std::byte>(sample >> shift);
    }
    crc = base::crc32c(std::span(bytes).first(part.size() * 8), crc);
    samples = samples.subspan(part.size());
  }
  return crc;
}

std::string text_of(const LedgerHeader& h) {
  return fmt::format(
      R"({{"format":"{}","version":{},"job":{},"seed":{},"samples":{},"batch_size":{},"shards":{},)"
      R"("substeps":{},"shuffle":{},"drop_last":{},"order":"{}","epochs":{},"first":{}}})"
      "\n",
      kFormat, kLedgerVersion, quoted(h.job), h.seed, h.samples, h.batch, h.shards, h.substeps,
      h.shuffle, h.drop_last, h.own_order ? "script" : "seed", h.epochs, h.first);
}

std::string with_room(std::string text, std::size_t size) {
  text.insert(text.size() - 1, size - text.size(), ' ');
  return text;
}

std::string text_with_room(const LedgerHeader& header) {
  LedgerHeader longest = header;
  longest.epochs = UINT64_MAX;
  return with_room(text_of(header), text_of(longest).size());
}

std::string text_of(const LedgerLine& line) {
  std::string leaves;
  for (const LeafRecord& leaf : line.leaves)
    leaves += fmt::format("{}{}", leaves.empty() ? "" : ",", text_of(leaf));
  return fmt::format(R"({{"step":{},"epoch":{},"substep":{},"n":{},"leaves":[{}]}})"
                     "\n",
                     line.step, line.epoch, line.substep, line.samples, leaves);
}

Result<LedgerHeader> parse_ledger_header(std::string_view text) {
  REGROUP_ASSIGN_OR_RETURN(const Json json, parse_object(text));
  Fields fields(json);
  if (fields.text("format") != kFormat) return damaged("it is not the header of a ledger");
  if (const auto version = fields.number("version", 0, UINT32_MAX); version != kLedgerVersion)
    return damaged(fmt::format("the ledger has version {}, expected {}", version, kLedgerVersion));
  LedgerHeader h;
  h.job = fields.text("job");
  h.seed = fields.number("seed", 0, UINT64_MAX);
  h.samples = fields.number("samples", 0, kMostLedgerSamples);
  h.batch = fields.number("batch_size", h.samples > 0 ? 1 : 0, kMostLedgerSamples);
  h.shards = static_cast<std::uint32_t>(fields.number("shards", 1, proto::kMaxShards));
  h.substeps = static_cast<std::uint32_t>(fields.number("substeps", 1, UINT32_MAX));
  h.shuffle = fields.flag("shuffle");
  h.drop_last = fields.flag("drop_last");
  const std::string order = fields.text("order");
  if (order != "seed" && order != "script") fields.fail("order: expected seed or script");
  h.own_order = order == "script";
  h.epochs = fields.number("epochs", 0, UINT64_MAX);
  h.first = fields.number("first", 1, proto::kMaxStep);
  if (h.samples > 0 && h.drop_last && h.samples < h.batch)
    fields.fail("drop_last leaves no batch of an epoch");
  REGROUP_RETURN_IF_ERROR(fields.end());
  return h;
}

Result<LedgerLine> parse_ledger_line(std::string_view text) {
  REGROUP_ASSIGN_OR_RETURN(const Json json, parse_object(text));
  Fields fields(json);
  LedgerLine line;
  line.step = fields.number("step", 1, proto::kMaxStep);
  line.epoch = fields.number("epoch", 0, UINT64_MAX);
  line.substep = static_cast<std::uint32_t>(fields.number("substep", 0, UINT32_MAX));
  line.samples = fields.number("n", 0, UINT64_MAX);
  const Json* leaves = fields.find("leaves");
  REGROUP_RETURN_IF_ERROR(fields.end());
  if (!leaves->is_array()) return damaged("leaves: expected a list");
  for (const Json& one : *leaves) {
    if (!parse_leaf(one, &line.leaves.emplace_back()))
      return damaged(fmt::format("leaf {}: expected [SAMPLES,\"CRC32C\"]", line.leaves.size() - 1));
  }
  return line;
}

std::string other_run(const LedgerHeader& header, const LedgerHeader& expected) {
  const std::initializer_list<std::pair<const char*, std::uint64_t LedgerHeader::*>> kLong = {
      {"seed", &LedgerHeader::seed},
      {"samples", &LedgerHeader::samples},
      {"batch_size", &LedgerHeader::batch}};
  for (const auto& [name, field] : kLong) {
    if (header.*field != expected.*field)
      return fmt::format("{} {}, expected {}", name, header.*field, expected.*field);
  }
  const std::initializer_list<std::pair<const char*, std::uint32_t LedgerHeader::*>> kShort = {
      {"shards", &LedgerHeader::shards}, {"substeps", &LedgerHeader::substeps}};
  for (const auto& [name, field] : kShort) {
    if (header.*field != expected.*field)
      return fmt::format("{} {}, expected {}", name, header.*field, expected.*field);
  }
  const std::initializer_list<std::pair<const char*, bool LedgerHeader::*>> kFlags = {
      {"shuffle", &LedgerHeader::shuffle},
      {"drop_last", &LedgerHeader::drop_last},
      {"a sampler of the script", &LedgerHeader::own_order}};
  for (const auto& [name, field] : kFlags) {
    if (header.*field != expected.*field)
      return fmt::format("{} {}, expected {}", name, header.*field, expected.*field);
  }
  return "";
}

}  // namespace regroup::elastic
