// Pictures of all recorded machines: nothing lies over anything else, nothing lies outside; and
// files of both kinds.
#include "tools/topo/picture.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "launcher/topology/load_machine.h"
#include "launcher/topology/text_input.h"
#include "tools/topo/options.h"
#include "tools/topo/paint.h"

namespace regroup::topo {
namespace {

namespace fs = std::filesystem;

std::vector<topology::Machine> machines() {
  std::vector<topology::Machine> out;
  for (const auto& entry : fs::directory_iterator("tests/machines")) {
    if (entry.path().extension() == ".md" || entry.path().extension() == ".sysfs") continue;
    auto machine = topology::load_machine(entry.path());
    EXPECT_TRUE(machine.ok()) << machine.status().message();
    if (machine.ok()) out.push_back(std::move(*machine));
  }
  return out;
}

bool overlap(const Box& a, const Box& b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

TEST(Picture, NoBoxLiesOverAnotherOrOutside) {
  for (const topology::Machine& machine : machines()) {
    const Picture picture = picture_of(machine, {});
    EXPECT_GE(picture.boxes.size(),
              machine.gpus.size() + machine.nics.size() + machine.numas.size())
        << machine.name;
    for (std::size_t i = 0; i < picture.boxes.size(); ++i) {
      const Box& box = picture.boxes[i];
      EXPECT_TRUE(box.x >= 0 && box.y >= 0 && box.x + box.width <= picture.width &&
                  box.y + box.height <= picture.height)
          << machine.name;
      for (std::size_t j = 0; j < i; ++j)
        EXPECT_FALSE(overlap(box, picture.boxes[j]))
            << machine.name << ": boxes " << i << " and " << j;
    }
    for (const Stroke& stroke : picture.strokes)
      EXPECT_LE(std::max(stroke.from.y, stroke.to.y) + stroke.sag, picture.height) << machine.name;
  }
}

TEST(Picture, TheLegendTellsNvLinksToNvSwitches) {
  const auto machine = topology::load_machine("tests/machines/hwloc-dgx2.xml");
  ASSERT_TRUE(machine.ok());
  const Picture picture = picture_of(*machine, {});
  EXPECT_TRUE(std::any_of(picture.labels.begin(), picture.labels.end(),
                          [](const Label& label) { return label.text == "NVLink to NVSwitches"; }));
}

TEST(Picture, RanksStandOnTheirGpus) {
  const auto machine = topology::load_machine("tests/machines/dgx-1v.topo");
  ASSERT_TRUE(machine.ok());
  const Picture without = picture_of(*machine, {}),
                with = picture_of(*machine, {-1, 0, 1, -1, -1, -1, -1, -1});
  EXPECT_EQ(with.boxes.size(), without.boxes.size() + 2);
}

TEST(Picture, IsWrittenAsSvgAndPng) {
  const auto machine = topology::load_machine("tests/machines/hwloc-dgx2.xml");
  ASSERT_TRUE(machine.ok());
  std::string folder = fs::temp_directory_path() / "regroup-picture-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const Picture picture = picture_of(*machine, {});
  const base::Status svg = paint(picture, Format::kSvg, folder + "/p.svg"),
                     png = paint(picture, Format::kPng, folder + "/p.png");
  ASSERT_TRUE(svg.ok()) << svg.message();
  ASSERT_TRUE(png.ok()) << png.message();
  EXPECT_THAT(*topology::read_text_file(folder + "/p.svg"), testing::HasSubstr("<svg"));
  EXPECT_THAT(*topology::read_text_file(folder + "/p.png"), testing::StartsWith("\x89PNG"));
  for (const Format format : {Format::kSvg, Format::kPng})
    EXPECT_THAT(paint(picture, format, folder + "/none/p").message(),
                testing::HasSubstr(folder + "/none/p: "));
  fs::remove_all(folder);
}

TEST(TopoOptions, NameTheWordThatIsWrong) {
  constexpr std::pair<const char*, const char*> kBad[] = {
      {"--what", "unknown option '--what'"},
      {"--svg", "--svg: a value is missing"},
      {"--ranks=1,x", "'x': expected the number of a GPU"},
      {"--colour=red", "auto, always or never"}};
  for (const auto& [word, message] : kBad)
    EXPECT_THAT(parse_options({word}).status().message(), testing::HasSubstr(message));
  const auto good = parse_options({"--machine", "m.xml", "--ranks", "2,0"});
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->machine, "m.xml");
  EXPECT_THAT(good->gpu_of_rank, testing::ElementsAre(2, 0));
}

}  // namespace
}  // namespace regroup::topo
