// regroup-checkpoint: what `regroup checkpoint` executes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/printable.h"
#include "base/status.h"
#include "tools/checkpoint/command.h"

namespace {

using namespace regroup;
using base::Status;
using checkpoint_tool::Answer;
using checkpoint_tool::Arguments;

struct Verb {
  std::string_view name;
  std::string_view words;  // the arguments, for the usage line
  std::size_t count;       // the number of arguments
  std::string_view options;
  Answer (*run)(const Arguments&);
  std::string_view help;
};
constexpr std::array<Verb, 7> kVerbs{{
    {"ls", "DIRECTORY", 1, "--json", checkpoint_tool::ls,
     "list the checkpoints of a directory, newest first"},
    {"show", "PLACE", 1, "--json --step", checkpoint_tool::show, "show what a checkpoint contains"},
    {"verify", "PLACE", 1, "--step", checkpoint_tool::verify,
     "read every byte of a checkpoint, or of all in a directory; exit status 1: damaged"},
    {"diff", "PLACE PLACE", 2, "--step", checkpoint_tool::diff,
     "name the tensors that differ; exit status 1: some differ"},
    {"export", "PLACE FILE", 2, "--to --step --model-only", checkpoint_tool::export_to,
     "write a safetensors, torch or npz file; --model-only: only the model, with the keys of its "
     "state_dict()"},
    {"import", "FILE DIRECTORY", 2, "--from --step", checkpoint_tool::import_from,
     "make a checkpoint from a safetensors, torch or npz file"},
    {"prune", "DIRECTORY", 1, "--keep-last --keep-every", checkpoint_tool::prune,
     "remove all but the newest (--keep-last, at least 2) and those whose step is a multiple of "
     "--keep-every"},
}};

int fail(std::string_view why, int status) {
  fmt::print(stderr, "regroup checkpoint: {}\n", base::escaped(why));
  return status;
}

constexpr const char* kLine = "  {:<6} {:<15} {:<27} {}\n";

std::string line_of(const Verb& verb) {
  return fmt::format(kLine, verb.name, verb.words, verb.options, verb.help);
}

std::string help() {
  std::string out =
      "usage: regroup checkpoint VERB ...\nPLACE is a checkpoint, or a directory of checkpoints: "
      "its newest "
      "one, or that of --step N.\n\n";
  for (const Verb& verb : kVerbs) out += line_of(verb);
  out += fmt::format(kLine, "save", "[JOB]", "",
                     "save the tables of a running job with --ps-memory and --checkpoint");
  return out +
         "\nIn .npz files bfloat16 and float8 have NumPy's types <V2 and |V1; the comment of each "
         "such "
         "member of\nthe archive names the type, and import requires it for |V1.\n";
}

// Returns "; did you mean X?" with the candidate most like `word`; "" if none is like it.
std::string hint(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = base::nearest(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

Status unknown_verb(std::string_view name) {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  return base::invalid_argument(
      name.empty() ? "expected a verb" : fmt::format("unknown verb {}{}", name, hint(name, names)));
}

template <class T>
Status number(std::string_view option, std::string_view text, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return {};
  return base::invalid_argument(fmt::format("{} {}: not a number", option, text));
}

Status set_option(Arguments* out, std::string_view option, std::string_view value) {
  if (option == "--to" || option == "--from") return out->format = value, Status();
  if (option == "--step") return number(option, value, &out->step.emplace());
  if (option == "--keep-last") return number(option, value, &out->retention.last);
  return number(option, value, &out->retention.every);
}

base::Result<Arguments> parse(const Verb& verb, int argc, char** argv) {
  Arguments out;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) {
      out.words.emplace_back(word);
      continue;
    }
    if (fmt::format(" {} ", verb.options).find(fmt::format(" {} ", word)) == std::string::npos)
      return base::invalid_argument(fmt::format("{}: unknown option {}{}", verb.name, word,
                                                hint(word, words_of(verb.options))));
    if (word == "--json" || word == "--model-only") {
      (word == "--json" ? out.json : out.model_only) = true;
      continue;
    }
    if (++i == argc)
      return base::invalid_argument(fmt::format("option {}: a value is missing", word));
    REGROUP_RETURN_IF_ERROR(set_option(&out, word, argv[i]));
  }
  if (out.words.size() == verb.count) return out;
  return base::invalid_argument(
      fmt::format("{}: expected {}, got {} words", verb.name, verb.words, out.words.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  const auto is_help = [](std::string_view word) { return word == "--help" || word == "-h"; };
  if (name == "help" || is_help(name)) {
    fmt::print("{}", help());
    return 0;
  }
  const auto* verb = std::ranges::find(kVerbs, name, &Verb::name);
  if (verb == kVerbs.end()) {
    fmt::print(stderr, "{}", help());
    return fail(unknown_verb(name).message(), 2);
  }
  if (std::any_of(argv + 2, argv + argc, is_help)) {
    fmt::print("usage: regroup checkpoint VERB ...\n{}", line_of(*verb));
    return 0;
  }
  const auto arguments = parse(*verb, argc, argv);
  if (!arguments.ok()) return fail(arguments.status().message(), 2);
  const Answer answer = verb->run(*arguments);
  if (answer.ok()) return *answer;
  return fail(answer.status().message(), answer.code() == base::Code::kDataLoss ? 1 : 2);
}
