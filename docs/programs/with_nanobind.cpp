// A function in C++ that takes the arrays of any library, by nanobind and the table of cai_bridge.
#include <nanobind/nanobind.h>

#include <cai_bridge.h>

namespace nb = nanobind;

static const CaiBridgeApi *api;

// An array while work on it is queued on `stream`. Call `finish` after the work; without it, as after an exception, the end
// gives the array back.
struct Taken {
    CaiBridgeArray *array;
    uint64_t stream;
    CaiBridgeDescription it;
    bool is_given_back = false;

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
    void finish()
    {
        if (api->give_back(array, stream) < 0)  // the producer's waits for the stream
            throw nb::python_error();
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

// Frees memory of the extension: here an object of Python's. Work on it may still run, so in an extension with CUDA this is
// `cudaFreeAsync` on the stream.
static void drop(void *memory)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(static_cast<PyObject *>(memory));
    PyGILState_Release(state);
}

// Memory of the extension as a C-contiguous array of the shape and type of `x`, ready on its stream.
static nb::object like(const Taken &x, nb::object memory)
{
    CaiBridgeExport out = {};
    out.data = reinterpret_cast<void *>(nb::cast<uintptr_t>(memory.attr("ptr")));
    out.shape = x.it.shape;
    out.ndim = x.it.ndim;
    out.dtype_code = x.it.dtype_code;
    out.dtype_bits = x.it.dtype_bits;
    out.dtype_lanes = x.it.dtype_lanes;
    out.device_type = 2;  // CUDA
    out.device_id = api->device(x.array);
    out.stream = x.stream;
    out.owner = memory.ptr();
    out.deleter = drop;
    PyObject *object;
    if (api->export_object(&out, &object) < 0)
        throw nb::python_error();
    memory.release();  // the deleter's from here on
    return nb::steal(object);
}

NB_MODULE(with_nanobind, module)
{
    api = static_cast<const CaiBridgeApi *>(PyCapsule_Import(CAI_BRIDGE_CAPSULE, 0));
    if (api == nullptr)
        throw nb::python_error();
    if (api->version < 2)  // of the newest function here
        throw nb::import_error("cai_bridge: its C interface is older than this extension");
    // In an extension a kernel launch is in the place of `launch`.
    module.def("apply", [](nb::handle x, uint64_t stream, nb::callable launch) {
        Taken taken(x, stream);
        launch(reinterpret_cast<uintptr_t>(taken.it.data));
        taken.finish();
    });
    // And `allocate` is in the place of `cudaMallocAsync` on the stream.
    module.def("doubled", [](nb::handle x, uint64_t stream, nb::callable allocate, nb::callable launch) {
        Taken taken(x, stream);
        nb::object memory = allocate();
        launch(reinterpret_cast<uintptr_t>(taken.it.data), memory);
        nb::object out = like(taken, memory);
        taken.finish();
        return out;
    });
}
