/* What an extension in C does with an array, by the table alone. Called from tests/python/test_c_interface.py. */
#include <Python.h>

#include "cai_bridge.h"

/* Imports `object`, describes it and orders it before work on `stream`. */
int begin(const CaiBridgeApi *api, PyObject *object, uint64_t stream, CaiBridgeArray **array,
          CaiBridgeDescription *described)
{
    if (api->version < 2) { /* export_object is of version 2, and the newest function here */
        PyErr_Format(PyExc_ImportError, "cai_bridge: got version %u of its C interface; allowed: 2 or later",
                     (unsigned)api->version);
        return -1;
    }
    if (api->import_object(object, array) < 0)
        return -1;
    api->describe(*array, described);
    if (api->order(*array, stream) < 0) {
        api->release(*array);
        *array = 0;
        return -1;
    }
    return 0;
}

/* Gives the array back in the order of `stream`, and releases it. */
int end(const CaiBridgeApi *api, CaiBridgeArray *array, uint64_t stream)
{
    int code = api->give_back(array, stream);
    api->release(array);
    api->release(0);
    return code;
}

/* Hands memory out. */
int hand_out(const CaiBridgeApi *api, const CaiBridgeExport *memory, PyObject **object)
{
    return api->export_object(memory, object);
}
