// Source files compiled into regroup-bench as texts, so that it needs no installed copies; made by
// tools/bench/CMakeLists.txt.
#pragma once

namespace regroup::bench {

extern const char* const kPatternHeader;       // pattern.h
extern const char* const kStartBarrierHeader;  // start_barrier.h
extern const char* const kRivalMpi;            // rival_mpi.c
extern const char* const kRivalGloo;           // rival_gloo.py
extern const char* const kPlot;                // plot.py

}  // namespace regroup::bench
