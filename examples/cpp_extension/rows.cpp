/* An extension in C++, without Rust. It takes an array of any library and returns rows of it, without a copy.
 *
 *     c++ -std=c++17 -shared -fPIC rows.cpp -o rows.so \
 *         $(python3-config --includes) -I$(python3 -c 'import cai_bridge; print(cai_bridge.get_include())')
 */
#include <Python.h>

#include <cai_bridge.h>

#include <algorithm>
#include <memory>
#include <new>

namespace {

const CaiBridgeApi *api;

// Keeps an imported array until the last array made of it ends. Then the producer's stream waits for `stream`.
struct Part {
    CaiBridgeArray *whole;
    uint64_t stream;

    Part(CaiBridgeArray *whole, uint64_t stream) : whole(whole), stream(stream) {}
    Part(const Part &) = delete;
    ~Part()
    {
        api->give_back(whole, stream);  // if this fails, `release` makes the wait
        api->release(whole);
    }
};

// Called on any thread. By now `stream` waits for all users of the memory.
void release(void *owner)
{
    delete static_cast<Part *>(owner);
}

// rows(x, first, last, stream): x[first:last], for work on `stream`. `stream` is a cudaStream_t as an integer; the
// caller keeps it as long as the result. Throws no C++ exception.
PyObject *rows(PyObject *, PyObject *arguments)
{
    PyObject *object, *out;
    long long first, last;
    unsigned long long stream;
    if (!PyArg_ParseTuple(arguments, "OLLK:rows", &object, &first, &last, &stream))
        return nullptr;

    CaiBridgeArray *x;
    if (api->import_object(object, &x) < 0)
        return nullptr;
    CaiBridgeDescription it;
    api->describe(x, &it);
    if (it.ndim == 0 || first < 0 || last < first || last > it.shape[0]) {
        PyErr_SetString(PyExc_IndexError, "rows: outside the array");
        api->release(x);
        return nullptr;
    }
    if (api->order(x, stream) < 0) {  // the stream waits for the producer's stream
        api->release(x);
        return nullptr;
    }
    std::unique_ptr<Part> owner(new (std::nothrow) Part(x, stream));
    if (owner == nullptr) {
        api->release(x);
        return PyErr_NoMemory();
    }
    // From here on work is queued, so every way out gives the array back.
    // kernel<<<grid, block, 0, reinterpret_cast<cudaStream_t>(stream)>>>(it.data, ...);

    int64_t shape[64];  // the bridge accepts at most 64 dimensions
    std::copy_n(it.shape, it.ndim, shape);
    shape[0] = last - first;
    CaiBridgeExport part = {};
    part.data = static_cast<char *>(it.data) + first * it.strides[0] * it.dtype_bits / 8 * it.dtype_lanes;
    part.shape = shape;
    part.strides = it.strides;
    part.ndim = it.ndim;
    part.dtype_code = it.dtype_code;
    part.dtype_bits = it.dtype_bits;
    part.dtype_lanes = it.dtype_lanes;
    part.device_type = it.device_type;
    part.device_id = api->device(x);  // the stream's GPU; the description has 0 for managed and pinned memory
    part.readonly = it.readonly;
    part.stream = stream;
    part.owner = owner.get();
    part.deleter = release;
    if (api->export_object(&part, &out) < 0)
        return nullptr;  // after a refusal the owner is still ours
    owner.release();
    return out;
}

PyMethodDef methods[] = {
    {"rows", rows, METH_VARARGS, "rows(x, first, last, stream): x[first:last], ready on the stream, which must outlive the result."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "rows", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_rows(void)
{
    api = static_cast<const CaiBridgeApi *>(PyCapsule_Import(CAI_BRIDGE_CAPSULE, 0));
    if (api == nullptr)
        return nullptr;
    if (api->version < 3) {  // `device`, the newest function used here, needs version 3
        PyErr_Format(PyExc_ImportError, "cai_bridge: got version %u of its C interface; allowed: 3 or later",
                     static_cast<unsigned>(api->version));
        return nullptr;
    }
    return PyModule_Create(&module);
}
