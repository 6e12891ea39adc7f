// DeclaredArena: the first declaration makes the arena, later ones must be the same.
#include "membership/agent/declared_arena.h"

#include <gmock/gmock.h>

namespace regroup::membership {
namespace {

using proto::Join;
using testing::HasSubstr;

const Join kFirst{.elements = 4, .state_bytes = 64, .model = "m", .fingerprint = "f"};
const AgentOptions kOptions{.node = 2, .slots = 3, .shards = 4};

const DeclaredArena::Refused* refused(
    const std::variant<DeclaredArena::Admitted, DeclaredArena::Refused>& answer) {
  return std::get_if<DeclaredArena::Refused>(&answer);
}

TEST(DeclaredArena, IsMadeForTheFirstDeclaration) {
  DeclaredArena declared;
  EXPECT_FALSE(declared.arena().mapped());
  EXPECT_FALSE(declared.declaration());
  ASSERT_EQ(refused(declared.admit(kFirst, kOptions)), nullptr);
  EXPECT_EQ(declared.declaration(), kFirst);
  const shmem::ArenaSpec& spec = declared.arena().spec();
  EXPECT_EQ(spec.node, 2U);
  EXPECT_EQ(spec.slots, 3U);
  EXPECT_EQ(spec.elements, 4U);
  EXPECT_EQ(spec.snapshot_bytes, 64U);
  EXPECT_EQ(spec.kept_results, 0U);
  EXPECT_EQ(spec.save_bytes, 0U);
}

TEST(DeclaredArena, ADeclarationThatDiffersIsRefusedWithTheKindOfTheDifference) {
  DeclaredArena declared;
  ASSERT_EQ(refused(declared.admit(kFirst, kOptions)), nullptr);
  Join other = kFirst;
  other.model = "x";
  const auto model = declared.admit(other, kOptions);
  ASSERT_NE(refused(model), nullptr);
  EXPECT_THAT(refused(model)->reason, HasSubstr("'x'"));
  EXPECT_STREQ(refused(model)->kind, "another model");
  other = kFirst;
  other.fingerprint = "g";
  const auto numbers = declared.admit(other, kOptions);
  ASSERT_NE(refused(numbers), nullptr);
  EXPECT_STREQ(refused(numbers)->kind, proto::kRefusedKind);
  AgentOptions loose = kOptions;
  loose.any_fingerprint = true;
  const auto admitted = declared.admit(other, loose);
  ASSERT_EQ(refused(admitted), nullptr);
  EXPECT_THAT(std::get<DeclaredArena::Admitted>(admitted).warning, HasSubstr("--reproducible=off"));
}

TEST(DeclaredArena, ARefusedFirstMemberDeclaresNothing) {
  DeclaredArena declared;
  AgentOptions options = kOptions;
  options.checkpoints = true;
  options.checkpoint_memory = 1;
  const auto large = declared.admit(kFirst, options);
  ASSERT_NE(refused(large), nullptr);
  EXPECT_THAT(refused(large)->reason, HasSubstr("--checkpoint-memory 1: "));
  options.checkpoint_memory = 0;
  options.resumed_fingerprint = "g";
  ASSERT_NE(refused(declared.admit(kFirst, options)), nullptr);
  EXPECT_FALSE(declared.declaration());
  EXPECT_FALSE(declared.arena().mapped());
  options.resumed_fingerprint.clear();
  ASSERT_EQ(refused(declared.admit(kFirst, options)), nullptr);
  EXPECT_GT(declared.arena().spec().save_bytes, 64U);
}

TEST(DeclaredArena, AForgottenDeclarationIsMadeAnewWithAnotherArena) {
  DeclaredArena declared;
  ASSERT_EQ(refused(declared.admit(kFirst, kOptions)), nullptr);
  declared.forget_declaration();
  Join other = kFirst;
  other.elements = 8;
  ASSERT_EQ(refused(declared.admit(other, kOptions)), nullptr);
  EXPECT_EQ(declared.arena().spec().elements, 8U);
  EXPECT_EQ(declared.declaration(), other);
}

TEST(DeclaredArena, OnlyALargeStateGetsARingOfResults) {
  AgentOptions options = kOptions;
  options.kept_results = 2;
  options.learn_above = 65;
  DeclaredArena small;
  ASSERT_EQ(refused(small.admit(kFirst, options)), nullptr);
  EXPECT_EQ(small.arena().spec().kept_results, 0U);
  options.learn_above = 64;
  DeclaredArena large;
  ASSERT_EQ(refused(large.admit(kFirst, options)), nullptr);
  EXPECT_EQ(large.arena().spec().kept_results, 2U);
}

}  // namespace
}  // namespace regroup::membership
