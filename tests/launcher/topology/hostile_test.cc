// Bad input of every reader: a clear error that names file and line, never a crash or a guess.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "launcher/topology/load_machine.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

using testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  const auto machine = parse_machine(text, "f");
  return machine.ok() ? "it was read" : machine.status().message();
}

std::string recorded(const std::string& name) {
  auto text = read_text_file("tests/machines/" + name);
  EXPECT_TRUE(text.ok());
  return text.ok() ? *text : "";
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

TEST(Hostile, XmlThatIsCutNamesTheLine) {
  for (const char* name : {"nccl-mi300x.xml", "hwloc-dgx2.xml"}) {
    const std::string text = recorded(name);
    EXPECT_THAT(refusal_of(text.substr(0, text.size() / 2)), testing::ContainsRegex("^f:[0-9]+: "))
        << name;
  }
}

TEST(Hostile, EntityBombsAreNotRead) {
  EXPECT_THAT(refusal_of("<?xml version=\"1.0\"?>\n<!DOCTYPE system [\n<!ENTITY a \"aaaa\">\n"
                         "<!ENTITY b \"&a;&a;\">\n]>\n<system><cpu numaid=\"0\"/></system>"),
              HasSubstr("f:3: declares an entity"));
  // One that nobody declares stays text.
  EXPECT_THAT(refusal_of("<system>\n<cpu numaid=\"&bomb;\"/></system>"),
              HasSubstr("f:2: numaid=\"&bomb;\""));
}

TEST(Hostile, DeepNestingIsRefused) {
  std::string deep = "<system><cpu numaid=\"0\">";
  for (int i = 0; i < 100000; ++i) deep += "\n<pci busid=\"0000:00:00.0\">";
  for (int i = 0; i < 100000; ++i) deep += "</pci>";
  EXPECT_THAT(refusal_of(deep + "</cpu></system>"), HasSubstr("nested deeper than 64"));
}

TEST(Hostile, ABusIdThatIsThereTwiceIsNamedWithItsLine) {
  const std::string twice = replaced(recorded("nccl-mi250x-frontier.xml"),
                                     "<pci busid=\"0000:c6:00.0\"", "<pci busid=\"0000:c1:00.0\"");
  EXPECT_THAT(refusal_of(twice), HasSubstr("f:14: bus ID 0000:c1:00.0 is listed twice"));
  const std::string hwloc = replaced(recorded("hwloc-dgx2.xml"), "pci_busid=\"0000:36:00.0\"",
                                     "pci_busid=\"0000:34:00.0\"");
  EXPECT_THAT(refusal_of(hwloc),
              testing::ContainsRegex("^f:[0-9]+: bus ID 0000:34:00.0 is listed twice"));
}

TEST(Hostile, TheSmallLanguageKnowsABusIdOnce) {
  EXPECT_THAT(refusal_of("numa 0\ngpu 0 at=numa:0 bus=1:0\nnic a at=numa:0 bus=0000:01:00.0\n"),
              HasSubstr("f:3: bus ID 0000:01:00.0 is listed twice"));
  EXPECT_THAT(
      refusal_of("numa 0\nnic a at=numa:0 bus=1:0 port=1\nnic b at=numa:0 bus=1:0 port=2\n"),
      HasSubstr("f:3: bus ID"));
  EXPECT_THAT(refusal_of("numa 0\ncard c at=numa:0\nnic a at=c bus=1:0\nnic b at=c bus=1:0\n"),
              HasSubstr("f:4: bus ID"));
  EXPECT_TRUE(parse_machine(
                  "numa 0\ncard c at=numa:0\nnic a at=c bus=1:0\nnic b at=c bus=1:0 port=2\n", "f")
                  .ok());
}

TEST(Hostile, ASwitchInsideItselfIsACycle) {
  EXPECT_THAT(
      refusal_of("<system>\n<cpu numaid=\"0\">\n<pci busid=\"0:1:0\">\n<pci busid=\"0:1:0\">\n"
                 "<pci busid=\"0:2:0\" class=\"0x030200\"/></pci></pci></cpu></system>"),
      HasSubstr("f:4: bus ID 0000:01:00.0 is listed twice"));
}

TEST(Hostile, ALinkOfOneSideIsNamed) {
  const std::string text =
      replaced(recorded("nccl-mi250x-frontier.xml"),
               "<xgmi target=\"0000:c1:00.0\" count=\"4\" tclass=\"0x038000\"/>", "");
  EXPECT_THAT(
      refusal_of(text),
      HasSubstr("f:9: 0000:c1:00.0 lists 4 link(s) to 0000:c6:00.0, which lists 0 in return"));
  const std::string uneven =
      replaced(recorded("nccl-mi250x-frontier.xml"), "<xgmi target=\"0000:c1:00.0\" count=\"4\"",
               "<xgmi target=\"0000:c1:00.0\" count=\"3\"");
  EXPECT_THAT(refusal_of(uneven), HasSubstr("which lists 3 in return"));
  const std::string nowhere =
      replaced(recorded("nccl-mi250x-frontier.xml"), "<xgmi target=\"0000:c9:00.0\"",
               "<xgmi target=\"0000:55:00.0\"");
  EXPECT_THAT(refusal_of(nowhere),
              HasSubstr("lists a link to 0000:55:00.0, which is not a GPU of this machine"));
}

TEST(Hostile, NumbersBeyondBoundsAreNamed) {
  const std::string nccl =
      "<system>\n<cpu numaid=\"0\"{}>\n<pci busid=\"{}\" class=\"0x030200\"{}><gpu "
      "dev=\"{}\"/></pci></cpu></system>";
  const auto with = [&nccl](const char* cpu, const char* id, const char* pci, const char* dev) {
    return refusal_of(fmt::format(fmt::runtime(nccl), cpu, id, pci, dev));
  };
  EXPECT_EQ(with("", "1:2:3.0", "", "0"), "it was read");
  EXPECT_THAT(with(" affinity=\"xyz\"", "1:2:3.0", "", "0"),
              HasSubstr("f:2: affinity: expected a processor mask"));
  EXPECT_THAT(with("", "hello", "", "0"),
              HasSubstr("f:3: busid=\"hello\": expected a PCI address"));
  EXPECT_THAT(with("", "1:2:3.0", " link_width=\"99999999999\"", "0"),
              HasSubstr("f:3: link_width"));
  EXPECT_THAT(with("", "1:2:3.0", "", "-5"), HasSubstr("f:3: dev=\"-5\": expected a number"));
  EXPECT_THAT(refusal_of(replaced(recorded("hwloc-dgx2.xml"), "type=\"PU\" os_index=\"0\"",
                                  "type=\"PU\" os_index=\"4294967295\"")),
              testing::ContainsRegex("^f:[0-9]+: os_index"));
}

TEST(Hostile, OtherXmlIsNamed) {
  EXPECT_THAT(refusal_of("<html></html>"),
              HasSubstr("f:1: <html>: expected hwloc's <topology> or NCCL's <system>"));
  EXPECT_THAT(refusal_of("<system></system>"), HasSubstr("f:1: expected a <cpu>"));
  EXPECT_THAT(refusal_of("<topology version=\"2.0\"><object type=\"Nonsense\"/></topology>"),
              HasSubstr("hwloc cannot read f"));
}

TEST(Hostile, AMatrixThatIsNotOneNamesItsRow) {
  const std::string impossible =
      "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPXB\tPIX\t0-3\t0\nGPU1\tPXB\t X "
      "\tSYS\t4-7\t1\nNIC0\tPIX\tSYS\t X \t\t\n";
  EXPECT_THAT(refusal_of(impossible),
              HasSubstr("f:4: NIC0 to GPU1 is SYS, but the other pairs make it PXB"));
  const std::string square = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n";
  EXPECT_EQ(refusal_of(square), "it was read");
  EXPECT_THAT(refusal_of(replaced(square, "GPU1\tPIX", "GPU1\tSYS")),
              HasSubstr("f:3: GPU1 to GPU0 differs from GPU0 to GPU1"));
  EXPECT_THAT(refusal_of(replaced(square, "\tPIX\n", "\tNV99999\n")),
              HasSubstr("f:2: 'NV99999': expected X"));
  EXPECT_THAT(refusal_of(replaced(square, "GPU1\tPIX\t X \n", "")),
              HasSubstr("f: got 1 rows for 2 columns"));
  EXPECT_THAT(refusal_of(replaced(square, "GPU1\tPIX\t X ", "GPU1\tPIX")),
              HasSubstr("f:3: got 1 cells for 2 columns"));
}

TEST(Hostile, FilesThatAreNoneOrEndlessAreErrors) {
  EXPECT_EQ(load_machine("/nonexistent").code(), base::Code::kNotFound);
  EXPECT_THAT(load_machine("/dev/zero").status().message(), HasSubstr("/dev/zero: longer than"));
  EXPECT_FALSE(load_machine("/tmp").ok());
}

}  // namespace
}  // namespace regroup::topology
