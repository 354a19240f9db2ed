// A function in C++ that takes the arrays of any library, by pybind11 and the table of cai_bridge.
#include <pybind11/pybind11.h>

#include <cai_bridge.h>

namespace py = pybind11;

static const CaiBridgeApi *api;

// An array while work on it is queued on `stream`. Call `finish` after the work; without it, as after an exception, the end
// gives the array back.
struct Taken {
    CaiBridgeArray *array;
    uint64_t stream;
    CaiBridgeDescription it;
    bool is_given_back = false;

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
    void finish()
    {
        if (api->give_back(array, stream) < 0)  // the producer's waits for the stream
            throw py::error_already_set();
        is_given_back = true;
    }
    ~Taken()
    {
        if (!is_given_back && api->give_back(array, stream) < 0)
            PyErr_WriteUnraisable(nullptr);  // `release` makes the wait
        api->release(array);
    }
    Taken(const Taken &) = delete;
};

PYBIND11_MODULE(with_pybind11, module)
{
    api = static_cast<const CaiBridgeApi *>(PyCapsule_Import(CAI_BRIDGE_CAPSULE, 0));
    if (api == nullptr)
        throw py::error_already_set();
    if (api->version < 1)  // of the newest function here
        throw py::import_error("cai_bridge: its C interface is older than this extension");
    // In an extension a kernel launch is in the place of `launch`.
    module.def("apply", [](py::handle x, uint64_t stream, py::function launch) {
        Taken taken(x, stream);
        launch(reinterpret_cast<uintptr_t>(taken.it.data));
        taken.finish();
    });
}
