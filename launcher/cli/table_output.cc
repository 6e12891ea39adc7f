// How members' output is written, and who reads standard input.
#include <fmt/format.h>

#include "base/values.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using base::Status;
using Tag = spec::OutputRequest::Tag;

// nocopy, nojobid and their relatives.
bool set_qualifier(spec::OutputRequest& out, std::string_view word) {
  if (word == "nocopy") return out.copy = false, true;
  if (word == "copy") return out.copy = true, true;
  if (word == "nojobid") return out.job_folder = false, true;
  if (word == "jobid") return out.job_folder = true, true;
  if (word == "raw") return out.raw = true, true;
  return word == "pattern";
}

// PATH[:QUALIFIER,...]; `path` is what stands before them.
Status split_qualifiers(spec::OutputRequest& out, const ParsedArgument& argument,
                        const std::string& text, std::string& path) {
  const std::size_t colon = text.find(':');
  path = text.substr(0, colon);
  if (path.empty()) return base::bad_value(argument.name, argument.value(), "expected a file name");
  if (colon == std::string::npos) return {};
  for (const std::string& word : base::split(text.substr(colon + 1), ",:")) {
    if (!set_qualifier(out, base::lower(word))) {
      return base::bad_value(argument.name, argument.value(),
                             fmt::format("'{}': expected nocopy, copy, nojobid or raw", word));
    }
  }
  return {};
}

Status set_folder(OptionsBuilder& builder, const ParsedArgument& argument) {
  return split_qualifiers(builder.out.output, argument, argument.value(),
                          builder.out.output.folder);
}

// Of Open MPI 5, which names the job and the rank in this order of precedence, and the stream
// always (finish()).
constexpr const char* kJobRankPrefix = "[${job},${number}]<${stream}>: ";
constexpr const char* kRankPrefix = "[${number}]<${stream}>: ";

Status set_tag(spec::OutputRequest& out, const char* prefix) {
  out.tag = Tag::kJobRank;
  const auto precedence = [](std::string_view one) {
    return one == kJobRankPrefix ? 2 : one == kDetailedPrefix ? 1 : 0;
  };
  if (precedence(prefix) >= precedence(out.log.prefix)) out.log.prefix = prefix;
  return {};
}

// Hydra's pattern in the form of LogRequest::prefix: %r is the rank, %h and %p the host and its
// number, %g the process group.
Status set_pattern(OptionsBuilder& builder, const ParsedArgument& argument) {
  std::string& out = builder.out.output.log.prefix;
  out.clear();
  const std::string& pattern = argument.value();
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool special = pattern[i] == '%' && i + 1 < pattern.size();
    switch (special ? pattern[++i] : '\0') {
      case '\0':
        out += pattern[i] == '$' ? "$$" : pattern.substr(i, 1);
        break;
      case 'r':
        out += "${number}";
        break;
      case 'h':
        out += "${host}";
        break;
      case 'p':
        out += "${host_number}";
        break;
      case 'g':
        out += '0';
        break;
      case '%':
        out += '%';
        break;
      default:
        return base::bad_value(argument.name, pattern,
                               fmt::format("'%{}': expected %r (rank), %h (host), %p (its number), "
                                           "%g (process group) or %%",
                                           pattern[i]));
    }
  }
  return {};
}

// One word of --output.
Status set_directive(OptionsBuilder& builder, const ParsedArgument& argument,
                     const std::string& word) {
  spec::OutputRequest& out = builder.out.output;
  const std::size_t equals = word.find('=');
  const std::string key = base::lower(word.substr(0, equals));
  const auto is = [&key](std::string_view whole, std::size_t least) {
    return key.size() >= least && whole.starts_with(key);
  };
  if (equals != std::string::npos && (is("directory", 1) || is("file", 1))) {
    std::string path;
    if (Status status = split_qualifiers(out, argument, word.substr(equals + 1), path);
        !status.ok())
      return status;
    if (key[0] == 'd') return out.folder = path, Status();
    out.stdout_pattern = path + ".%r.out";
    out.stderr_pattern = path + ".%r.err";
    return {};
  }
  if (equals == std::string::npos) {
    if (is("tag-detailed", 5)) return set_tag(out, kDetailedPrefix);
    if (is("tag-fullname", 5)) return set_tag(out, kJobRankPrefix);
    if (is("rank", 2)) return set_tag(out, kRankPrefix);
    if (is("tag", 2)) return set_tag(out, kJobRankPrefix);
    if (is("timestamp", 2)) {
      builder.name_stream = true;
      return out.timestamp = true, Status();
    }
    if (is("merge-stderr-to-stdout", 1)) return out.merge_stderr = true, Status();
    if (is("xml", 1)) return builder.ignored.push_back(argument.name + " xml"), Status();
    if (set_qualifier(out, key)) return {};
  }
  return base::bad_value(
      argument.name, argument.value(),
      fmt::format("'{}': expected tag, timestamp, merge, dir=DIR, file=FILE, nocopy or raw", word));
}

// tag,timestamp:nocopy
Status set_output(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string& text = argument.value();
  const bool path = text.find('=') != std::string::npos;  // its colons are its own
  for (const std::string& word : base::split(text, path ? "," : ",:")) {
    // After a path the words are its qualifiers: dir=D:nojobid,nocopy
    if (path && set_qualifier(builder.out.output, base::lower(word))) continue;
    if (Status status = set_directive(builder, argument, word); !status.ok()) return status;
  }
  return {};
}

// torchrun's: 0 to 3, or LOCAL_RANK:N,LOCAL_RANK:N
Status set_streams(const ParsedArgument& argument, spec::StreamChoice& out) {
  constexpr std::uint32_t kMostRanks = 65536;
  const std::string& text = argument.value();
  const auto read = [](std::string_view word, std::uint8_t& streams) {
    std::uint32_t number = 0;
    if (!base::read_number(word, number) || number > 3) return false;
    streams = static_cast<std::uint8_t>(number);
    return true;
  };
  out = {};
  if (text.find(':') == std::string::npos && read(text, out.all)) return {};
  for (const std::string& word : base::split(text, ",")) {
    const std::size_t colon = std::min(word.find(':'), word.size());
    std::uint32_t rank = 0;
    std::uint8_t streams = 0;
    if (!base::read_number(std::string_view(word).substr(0, colon), rank) || rank >= kMostRanks ||
        colon == word.size() || !read(std::string_view(word).substr(colon + 1), streams))
      return base::bad_value(argument.name, text,
                             "expected 0 to 3 (1: output, 2: errors), or RANK:N,RANK:N");
    if (out.of.size() <= rank) out.of.resize(rank + std::size_t{1});
    out.of[rank] = streams;
  }
  return {};
}

Status set_shown_ranks(OptionsBuilder& builder, const ParsedArgument& argument) {
  std::vector<std::uint32_t>& ranks = builder.out.output.log.shown;
  ranks.clear();
  for (const std::string& word : base::split(argument.value(), ",")) {
    if (!base::read_number(word, ranks.emplace_back()))
      return base::bad_value(argument.name, argument.value(), "expected local ranks: 0,1,2");
  }
  return {};
}

Status set_stdin(OptionsBuilder& builder, const ParsedArgument& argument) {
  spec::StdinRequest& to = builder.out.stdin_to;
  const std::string word = base::lower(argument.value());
  if (word == "all" || word == "none") {
    to.to = word == "all" ? spec::StdinRequest::To::kAll : spec::StdinRequest::To::kNone;
    return {};
  }
  to.to = spec::StdinRequest::To::kRank;
  if (!base::read_number(word, to.rank))
    return base::bad_value(argument.name, argument.value(), "expected a rank, all or none");
  return {};
}

}  // namespace

std::vector<Spec> output_options() {
  using D = OptionsBuilder;
  using G = const ParsedArgument;
  constexpr auto kJob = Scope::kJob;
  return {
      {{"tag-output"},
       "",
       "prefix each line with [job,rank]<stream>:",
       [](D& d, G&) { return d.out.output.tag = Tag::kJobRank, Status(); }},
      {{"prepend-rank", "l"},
       "",
       "prefix each line with [rank] (hydra)",
       [](D& d, G&) { return d.out.output.tag = Tag::kRank, Status(); }},
      {{"timestamp-output"},
       "",
       "prefix each line with its time of arrival",
       [](D& d, G&) { return d.out.output.timestamp = true, Status(); }},
      {{"merge-stderr-to-stdout"},
       "",
       "write the members' standard error to standard output",
       [](D& d, G&) { return d.out.output.merge_stderr = true, Status(); }},
      {{"output-filename", "output-directory"},
       "DIR[:nojobid,nocopy]",
       "copy output to DIR/1/rank.N/stdout and stderr; nojobid: omit the 1; nocopy: write to these "
       "files "
       "only",
       set_folder},
      {{"usage-log"},
       "FILE",
       "append each member's use of processors, memory and GPUs to FILE as CSV, every 2 s",
       [](D& d, G& g) { return d.out.usage_log = g.value(), Status(); }},
      {{"output"},
       "LIST",
       "set several output options (Open MPI 5): tag, timestamp, merge, dir=DIR, file=FILE, "
       "nocopy, raw",
       set_output},
      {{"prepend-pattern"},
       "PATTERN",
       "begin each output line with PATTERN; %r stands for the rank, %h for the host, %p for its "
       "number, %% for %",
       set_pattern},
      {{"outfile-pattern", "outfile"},
       "FILE",
       "write standard output to FILE; %r in its name stands for the rank",
       [](D& d, G& g) { return d.out.output.stdout_pattern = g.value(), Status(); }},
      {{"errfile-pattern", "errfile"},
       "FILE",
       "write standard error to FILE; %r in its name stands for the rank",
       [](D& d, G& g) { return d.out.output.stderr_pattern = g.value(), Status(); }},
      {{"redirects", "r"},
       "LIST",
       "write streams to files in --log-dir only (torchrun): 1 is output, 2 errors, 3 both; "
       "0:3,1:2: "
       "of these local ranks",
       [](D& d, G& g) { return set_streams(g, d.out.output.log.redirect); }},
      {{"tee", "t"},
       "LIST",
       "write streams to files in --log-dir, and with a prefix [default0]: here (torchrun); as "
       "--redirects",
       [](D& d, G& g) { return set_streams(g, d.out.output.log.tee); }},
      {{"log-dir"},
       "DIR",
       "folder of the files of --redirects and --tee: DIR/ID_JOB/attempt_0/LOCAL_RANK/stdout.log "
       "(torchrun)",
       [](D& d, G& g) { return d.log_folder = g.value(), Status(); }},
      {{"rdzv-id"},
       "ID",
       "begin of a folder's name in --log-dir (torchrun; default: none)",
       [](D& d, G& g) { return d.run_id = g.value(), Status(); }},
      {{"local-ranks-filter"},
       "RANKS",
       "show the output of these local ranks only, files aside (torchrun)",
       set_shown_ranks},
      {{"stdin"}, "RANK|all|none", "ranks that read standard input (default: 0)", set_stdin},
      {{"s"},
       "RANK|all|none",
       "same as --stdin (hydra)",
       set_stdin,
       kJob,
       Common::kNo,
       Dialect::kMpich},
  };
}

}  // namespace regroup::cli
