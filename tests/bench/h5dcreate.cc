// A bare loop of H5Dcreate, which import is held against: FILE has COUNT datasets of four floats,
// without bytes.
#include <hdf5.h>

#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  const hsize_t extent = 4;
  const hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  for (int i = 0; file >= 0 && i < count; ++i) {
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    const std::string name = "layer." + std::to_string(i) + ".weight";
    const hid_t dataset = H5Dcreate2(file, name.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT,
                                     H5P_DEFAULT, H5P_DEFAULT);
    if (dataset < 0) return 1;
    H5Dclose(dataset);
    H5Sclose(space);
  }
  return file < 0 || H5Fclose(file) < 0 ? 1 : 0;
}
