// Messages of every type, in which every field has a different value. The files of
// tests/golden/node hold them; fuzz_node starts from these files.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/agent/wire.h"
#include "membership/catchup/transfer_messages.h"
#include "tests/launcher/pmi/wire_samples.h"
#include "tests/proto/wire_samples.h"

namespace regroup::agent {

template <class Of>
struct Sample {
  std::string name;  // of the file
  Of message;
};

inline spec::CheckpointPlan sample_plan() {
  return {.directory = "/local",
          .shared = "/shared",
          .every = 100,
          .keep_last = 5,
          .keep_every = 1000,
          .memory = 1 << 30,
          .job = "j1",
          .seed = 7,
          .shards = 4,
          .resume = spec::Resume{"/shared/step-00000200", 200, 7, 4, "isa=avx2"}};
}

inline Setup sample_setup() {
  Setup setup;
  setup.host = 3, setup.name = "node3";
  setup.output.tag = spec::OutputRequest::Tag::kRank;
  setup.output.timestamp = setup.output.merge_stderr = setup.output.raw = true;
  setup.output.folder = "logs", setup.output.job_folder = setup.output.copy = false;
  setup.output.stdout_pattern = "o%r", setup.output.stderr_pattern = "e%r";
  setup.stdin_to = {spec::StdinRequest::To::kNone, 2};
  setup.verbose = setup.quiet = setup.services = setup.usage = true;
  setup.memory = spec::MemoryPolicy::kInterleave;
  setup.master = {"10.0.0.1", 4711};
  setup.notice = {"/run/notice", "notice", "http://m/", std::chrono::milliseconds(250)};
  setup.suspended_by = {"--notice-file /run/notice", "--notice-url http://m/"};
  setup.claims = {"scope", "", "outer"};
  setup.elastic = ElasticSetup{.arena_slots = 3,
                               .shards = 4,
                               .seed = 9,
                               .any_fingerprint = true,
                               .kept_results = 2,
                               .learn_above = 1 << 20,
                               .slots = {{{0, 2}, {{"A", "1"}}}, {{}, {}}},
                               .checkpoints = sample_plan(),
                               .controller = "10.0.0.1:4712",
                               .finished_limit = std::chrono::milliseconds(1500)};
  return setup;
}

inline StartSpace sample_start_space() {
  StartSpace start;
  start.order.space = {1, 4, false, {3}, 0, {}, pmi::ProcId{0, 4}, {"a", "b"}, {0, 1, 1}, 1};
  process::Place place{11, 2, 3, 5, 1, 1};
  place.host = 1, place.local_rank = 1, place.local_size = 2;
  start.order.members = {{place, 4, {6, 7}, {{"CUDA_VISIBLE_DEVICES", "GPU-1"}, {"EMPTY", ""}}}};
  return start;
}

// Of each body of the wire, and of each message of regroup-pmi, which has a wire of its own in
// Services.
inline std::vector<Sample<Message>> samples() {
  const std::vector<std::byte> said = encode(UserMessage{"a"});
  std::vector<Sample<Message>> out{
      {"setup", sample_setup()},
      {"add_app",
       AddApp{
           7,
           {"/bin/a", {"a", "-x"}, {{"A", "1"}, {"EMPTY", ""}}, "/tmp", "worker", {1.5, 1 << 20}}}},
      {"drop_app", DropApp{3}},
      {"start_space", sample_start_space()},
      {"signal", Signal{false, 5, 15}},
      {"end_host", EndHost{}},
      {"hello", Hello{"0.1", "b", 8, 99}},
      {"space_started", SpaceStarted{3, {base::Code::kNotFound, "program x"}}},
      {"exited", Exited{{4, 2, 4711, 0, 9, 64 << 20, ""}}},
      {"said", UserMessage{"a line"}},
      {"beat", Heartbeat{}},
      {"done", Done{true, "the checkpoint of step 20 is not in /d"}},
      {"services", Services{pmi::Aborted{{1, 2}, 3, "why"}}},
      {"data", StreamData{2, true, {std::byte{1}, std::byte{2}}}},
      {"taken", WindowUpdate{1, 10, true}},
      {"membership", Membership{proto::wire_samples().front().message}},
      {"start_agents",
       StartAgents{
           "a", {"ssh", "-p", "22"}, "/bin/r", "/w", 5000, {{7, "b", "u"}, {8, "c"}}, "/opt/r"}},
      {"reach", AddRoute{3, {4, 5}}},
      {"end_agent", EndAgent{9}},
      {"child_news", ChildEvent{ChildEvent::Kind::kLost, 4, "why", base::Code::kPeerLost}},
      {"relayed", Relayed{{1, 2}, said, true, {6, 7}}},
      {"gathered", Gathered{{{{1}, said, true, {6}}, {{2}, said, false, {}}}}},
      {"survey", InventoryRequest{true, "/x.topo", {4711, 4712}, {"scope", "", "outer"}}},
      {"surveyed", InventoryReply{{base::Code::kUnavailable, "no hwloc"}, R"({"a":[1,"\"["]})"}},
      {"used", UsageReport{R"({"members":[{"rank":1}]})"}},
      {"heard", Ack{17, Ack::Action::kRetransmit}},
      {"host_notice", HostNotice{500, "suspend", HostNotice::Kind::kSuspended}},
      {"ask_own", QueryLocalCheckpoint{sample_plan(), 300}},
      {"own_found",
       LocalCheckpointReply{true, {base::Code::kDeadlineExceeded, "/local: late"}, 300, "a line"}},
      {"start_store",
       StartStore{1, 3, "10.0.0.2", 7, 1 << 30, 4, 6, std::chrono::milliseconds(2500)}},
      {"query_store", QueryStore{5, 4, "", {1, 2}}},
      {"store_started",
       StoreStarted{{base::Code::kResourceExhausted, "too little"}, "tcp,b,10.0.0.2", "/run/ps"}},
      {"store_reply", StoreReply{5, {base::Code::kInvalidArgument, "a range"}, R"({"view":2})"}},
      {"store_failed", StoreFailed{"it ends"}},
  };
  int number = 0;
  for (const pmi::Message& message : pmi::samples())
    out.push_back({fmt::format("services_{:02}", number++), Services{message}});
  return out;
}

inline std::vector<Sample<catchup::TransferMessage>> transfer_samples() {
  return {{"transfer_request", catchup::TransferRequest{4097, 1, 3, true}},
          {"transfer_length", catchup::TransferLength{1ULL << 40, 17}},
          {"transfer_chunk",
           catchup::TransferChunk{17, 3, true, 0xdeadbeef, {std::byte{1}, std::byte{2}}}},
          {"transfer_error", catchup::TransferError{"why"}}};
}

}  // namespace regroup::agent
