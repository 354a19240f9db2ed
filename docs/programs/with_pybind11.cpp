// A function in C++ that takes the arrays of any library, by pybind11 and the table of cai_bridge.
#include <pybind11/pybind11.h>

#include <cai_bridge.h>

namespace py = pybind11;

// The functions below are of version 1, which every table has; for newer ones compare `api->version`.
static const CaiBridgeApi *api;

// An array while work on it is queued on `stream`.
struct Taken {
    CaiBridgeArray *array;
    uint64_t stream;
    CaiBridgeDescription it;

    Taken(py::handle x, uint64_t stream) : stream(stream)
    {
        if (api->import_object(x.ptr(), &array) < 0)
            throw py::error_already_set();
        api->describe(array, &it);
        if (api->order(array, stream) < 0) {  // the stream waits for the producer's
            api->release(array);
            throw py::error_already_set();
        }
    }
    ~Taken()
    {
        if (api->give_back(array, stream) < 0)  // the producer's waits for the stream
            PyErr_WriteUnraisable(nullptr);     // `release` keeps the memory until it can
        api->release(array);
    }
    Taken(const Taken &) = delete;
};

PYBIND11_MODULE(with_pybind11, module)
{
    api = static_cast<const CaiBridgeApi *>(PyCapsule_Import(CAI_BRIDGE_CAPSULE, 0));
    if (api == nullptr)
        throw py::error_already_set();
    // In an extension a kernel launch is in the place of `launch`.
    module.def("apply", [](py::handle x, uint64_t stream, py::function launch) {
        Taken taken(x, stream);
        launch(reinterpret_cast<uintptr_t>(taken.it.data));
    });
}
