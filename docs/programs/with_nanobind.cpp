// A function in C++ that takes the arrays of any library, by nanobind and the table of cai_bridge.
#include <nanobind/nanobind.h>

#include <cai_bridge.h>

namespace nb = nanobind;

// The functions below are of version 1, which every table has; for newer ones compare `api->version`.
static const CaiBridgeApi *api;

// An array while work on it is queued on `stream`.
struct Taken {
    CaiBridgeArray *array;
    uint64_t stream;
    CaiBridgeDescription it;

    Taken(nb::handle x, uint64_t stream) : stream(stream)
    {
        if (api->import_object(x.ptr(), &array) < 0)
            throw nb::python_error();
        api->describe(array, &it);
        if (api->order(array, stream) < 0) {  // the stream waits for the producer's
            api->release(array);
            throw nb::python_error();
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

NB_MODULE(with_nanobind, module)
{
    api = static_cast<const CaiBridgeApi *>(PyCapsule_Import(CAI_BRIDGE_CAPSULE, 0));
    if (api == nullptr)
        throw nb::python_error();
    // In an extension a kernel launch is in the place of `launch`.
    module.def("apply", [](nb::handle x, uint64_t stream, nb::callable launch) {
        Taken taken(x, stream);
        launch(reinterpret_cast<uintptr_t>(taken.it.data));
    });
}
