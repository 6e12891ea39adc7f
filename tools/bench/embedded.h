// Sources that regroup-bench carries within, so that it finds them wherever it is installed; made by
// tools/bench/CMakeLists.txt.
#pragma once

namespace regroup::bench {

extern const char* const kPlot;  // plot.py

}  // namespace regroup::bench
