// One message of every type with every field set to a value of its own: what the golden files in
// tests/golden/wire hold. A field that is added gets a value here and a new golden file; the old
// files stay, under their version.
#pragma once

#include <string>
#include <vector>

#include "proto/message.h"

namespace regroup::proto {

struct WireSample {
  std::string name;  // of the golden file
  Message message;
};

inline World sample_world() {
  World world;
  world.incarnation = 2;
  world.generation = 5;
  world.resume = Position::of(1234, 1);
  world.shards = 4;
  world.members = {{.id = 3, .slot_id = {0, 1}},
                   {.id = 9, .slot_id = {1, 0}, .needs_state = true, .from_step = 1236}};
  world.plan = {{0, 1}, {0, 1}, {0, 2}, {1, 0}};
  world.why = "member 4 was lost; member 9 joins";
  return world;
}

inline std::vector<SlotReport> sample_slots() {
  SlotReport open;
  open.member = 3;
  open.slot = 1;
  open.state = {Phase::kOpen, false, 5, Position::of(1235)};
  open.step = 1234;
  open.loss = 0.25;
  open.seals = {{1235, {0, 2}}, {1235, {2, 3}}};
  SlotReport dead;
  dead.member = 4;
  dead.slot = 2;
  dead.alive = false;
  dead.finished = true;
  dead.state = {Phase::kCommitted, true, 4, Position::of(1234, 1)};
  dead.proved = true;
  dead.caught_up_to = 1233;
  return {open, dead};
}

inline std::vector<WireSample> wire_samples() {
  const std::vector<Body> bodies = {
      Join{9, 25'000'000, 8, 3'000'000'000, "weight:65536;bias:40", "torch 2.13; avx2; 1 thread"},
      Ready{},
      Drained{},
      Welcome{2, 64, 0x0123456789abcdefULL},
      Refused{"the model differs from that of member 0"},
      Excluded{"resize to 2 members"},
      MemberReady{
          2,
          {9, 25'000'000, 8, 3'000'000'000, "weight:65536;bias:40", "torch 2.13; avx2; 1 thread"}},
      MemberDrained{3},
      MemberLost{4, true, true, 3, 9, true, "member 4 (pid 4711): killed by signal 9 (SIGKILL)"},
      Report{5, sample_slots()},
      HelloReply{5, 4, sample_slots(), Join{9, 25, 4, 100, "m", "f"}},
      Start{9, 2, 3, 1},
      Revoke{5},
      Announce{sample_world()},
      Notice{3},
      Kill{4, true, "no progress for 60 s"},
      Query{},
      Hello{},
      JobDone{-7, "all members are lost"},
      StatusRequest{},
      StatusReply{R"({"generation": 5})"},
      ResizeRequest{6},
      NoticeRequest{3},
      KillRequest{4},
      Reply{false, "there is no member 17"},
      PeerAddresses{5, {{3, {std::byte{1}, std::byte{0xff}}}, {4, {}}}},
      PeerSuspect{4, "connection reset by remote peer"},
      NodeUp{2, "node-b", 16},
      NodeSilent{2, true},
      NodeLost{2, "host node-b: its agent has not been heard for 5 s"},
      NodesKnown{},
      StartSource{4097, 12},
      SourceStatus{4097, 12, "10.0.0.1:4711", ""},
      StartTarget{4097, 12, {5, 6}, {{1, "10.0.0.1:4711"}, {2, "[fe80::1]:4711"}}},
      TargetStatus{4097, 5, 17, "another CRC32C"},
      EndTransfer{4097},
      Diverged{4, "member 4 has another state than members 0 and 2 after step 320"},
      Failure{4, "FileNotFoundError", "train.py:6",
              "FileNotFoundError: [Errno 2] No such file: 'log'", true},
      DeviceLine{5, 2, "GPU-6fca2c7a-0001-4f5b-b1f5-b2c4d3a09e11", 1000, 2, 500, 2 << 20},
      AllocateDeviceMemory{5, "GPU-6fca2c7a-0001-4f5b-b1f5-b2c4d3a09e11", 2560},
      DeviceMemory{5, 2 << 20, 1, true, "GPU 1: cuMemCreate"},
      CarrierLost{5, "its regroup-mpi has ended"},
  };
  const std::vector<std::string> names = {
      "join",          "ready",          "drained",        "welcome",
      "refused",       "excluded",       "member_ready",   "member_drained",
      "member_lost",   "report",         "hello_reply",    "start",
      "revoke",        "announce",       "notice",         "kill",
      "query",         "hello",          "job_done",       "status_request",
      "status_reply",  "resize_request", "notice_request", "kill_request",
      "reply",         "peer_addresses", "peer_suspect",   "node_up",
      "node_silent",   "node_lost",      "nodes_known",    "start_source",
      "source_status", "start_target",   "target_status",  "end_transfer",
      "diverged",      "failure",        "device_line",    "allocate_device_memory",
      "device_memory", "carrier_lost"};
  std::vector<WireSample> samples;
  for (std::size_t i = 0; i < bodies.size(); ++i)
    samples.push_back({names.at(i), {7, bodies[i], names.at(i) == "report" ? 2U : 0U}});
  return samples;
}

}  // namespace regroup::proto
