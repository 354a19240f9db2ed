/* A CUDA driver that does nothing but say which stream it was asked to work on, with which event or memory. For tests/cudarc/main.rs. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t handle;

#define CONTEXT ((void *)0x5500)

static handle events, streams = 0x5000, memory = 0x10000000;
static void *current;
static int depth;

static int say(const char *what, handle first, handle second)
{
    return printf("%s %#llx %llu\n", what, (unsigned long long)first, (unsigned long long)second) < 0;
}

int cuInit(unsigned flags) { return (int)(0 * flags); }
int cuGetErrorName(int code, const char **name) { *name = "CUDA_ERROR_OF_THE_TEST"; return 0 * code; }

int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { *value = 1; return 0 * (which + device); }

static int is_gone = 0;
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = CONTEXT; is_gone = 0; return 0 * device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0 * device; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxPushCurrent_v2(void *context) { depth++; return cuCtxSetCurrent(context); }
int cuCtxPopCurrent_v2(void **context) { *context = current; return cuCtxSetCurrent(--depth ? CONTEXT : NULL); }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
static handle life = 1;
/* CONTEXT_IS_DESTROYED until somebody retains the next context, which has the address of the one before. */
int cuCtxGetId(void *context, handle *id) { *id = life; return is_gone ? 709 : context == NULL; }
int cuDevicePrimaryCtxReset_v2(int device) { is_gone = 1; life++; return 0 * device; }

/* A function is named by the context that it was loaded in, and is launched in no other. */
int cuModuleLoadData(void **module, const void *image)
{
    const char *code = image;
    const int is_binary = !memcmp(code, "\x7f" "ELF\0", 5) || !memcmp(code, "\x50\xED\x55\xBA\0", 5);
    *module = (void *)life;
    return is_binary || !strcmp(code, "") || !strcmp(code, "// made at run time") ? 0 : 200;
}
static unsigned most_shared = 0;
int cuFuncSetAttribute(void *function, int which, int value)
{
    most_shared = (unsigned)value;
    return which != 8 || function == NULL;
}
int cuModuleUnload(void *module) { return module == NULL; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = module; return name == NULL; }
int cuLaunchKernel(void *function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f,
                   unsigned shared, handle stream, void **arguments, void **extra)
{
    if (function != (void *)life || shared > most_shared)
        return 400;
    return say("work", stream, *(handle *)arguments[0]) + (int)(0 * (a + b + c + d + e + f + shared + (extra != NULL)));
}
struct attribute { unsigned id; char pad[4]; union { char pad[64]; unsigned numbers[3]; void *pointer; } value; };
struct config { unsigned blocks[3], threads[3], shared; handle stream; struct attribute *attributes; unsigned n; };
int cuLaunchKernelEx(const struct config *config, void *function, void **arguments, void **extra)
{
    const char *what = NULL;
    for (unsigned i = 0; i < config->n; i++) {
        const struct attribute *one = &config->attributes[i];
        if (one->id == 4 && one->value.numbers[0] && config->blocks[0] % one->value.numbers[0] == 0
            && one->value.numbers[1] == 1 && one->value.numbers[2] == 1)
            what = "cluster";
        else if (one->id == 2 && one->value.numbers[0] == 1)
            what = "cooperative";
        else
            return 912;
    }
    if (function != (void *)life || config->shared > most_shared || what == NULL || extra != NULL
        || ((float *)arguments[1])[1] != 2)
        return 400;
    return say(what, config->stream, *(handle *)arguments[0]);
}
int cuCtxSynchronize(void) { return say("the host waits", 0, 0); }

/* The host memory that the driver knows: pinned, from `low` to below `high`. */
static handle low, high;
void pin(handle from, handle to)
{
    low = from;
    high = to;
}
/* For a pointer that it does not know, the driver answers 0. */
int cuPointerGetAttributes(unsigned n, int *which, void **data, handle pointer)
{
    if (low <= pointer && pointer < high)
        *(unsigned *)data[0] = 1;
    return (int)(0 * n * *which);
}

int cuStreamCreate(handle *stream, unsigned flags) { *stream = ++streams; return (int)(0 * flags); }
int cuStreamDestroy_v2(handle stream) { return (int)(0 * stream); }
int cuStreamGetCtx(handle stream, void **context) { *context = CONTEXT; return (int)(0 * stream); }
int cuStreamGetId(handle stream, handle *id) { *id = stream; return 0; }
int cuStreamGetFlags(handle stream, unsigned *flags) { *flags = 1; return (int)(0 * stream); }
int cuStreamIsCapturing(handle stream, int *status) { *status = 0; return (int)(0 * stream); }
int cuStreamGetCaptureInfo_v2(handle stream, int *status, handle *id, void **graph, void **nodes, size_t *count)
{
    *status = 0;
    return (int)(0 * (stream + (id != NULL) + (graph != NULL) + (nodes != NULL) + (count != NULL)));
}
int cuThreadExchangeStreamCaptureMode(int *mode) { return 0 * *mode; }
int cuStreamSynchronize(handle stream) { return say("the host waits", stream, 0); }

int cuEventCreate(handle *event, unsigned flags) { *event = ++events; return (int)(0 * flags); }
int cuEventDestroy_v2(handle event) { return (int)(0 * event); }
int cuEventQuery(handle event) { return (int)(0 * event); }
/* Of the calls from now on these fail: records, and waits. */
static int failing_records, failing_waits;
void fail(int records, int waits)
{
    failing_records = records;
    failing_waits = waits;
}
int cuEventRecord(handle event, handle stream)
{
    return failing_records ? failing_records--, 2 : say("record", stream, event);
}
int cuStreamWaitEvent(handle stream, handle event, unsigned flags)
{
    return failing_waits ? failing_waits--, 2 : say("wait", stream, event) + (int)(0 * flags);
}

int cuMemAllocAsync(handle *pointer, size_t size, handle stream)
{
    *pointer = memory;
    memory += size;
    return say("work", stream, *pointer);
}
int cuMemFreeAsync(handle pointer, handle stream) { return say("work", stream, pointer); }
int cuMemsetD8Async(handle pointer, unsigned char value, size_t size, handle stream)
{
    return say("work", stream, pointer) + (int)(0 * (value + size));
}
int cuMemcpyDtoDAsync_v2(handle to, handle from, size_t size, handle stream)
{
    return say("work", stream, from) + say("work", stream, to) + (int)(0 * size);
}

/* The first bytes of the last copy from the host. Pinned memory is read when the stream comes to the copy, which is
   when somebody asks. */
static unsigned char bytes[16];
static const void *late;
static size_t length;
int cuMemcpyHtoDAsync_v2(handle to, const void *from, size_t size, handle stream)
{
    const handle last = (handle)from + size - 1;
    late = (low <= (handle)from && (handle)from < high) || (low <= last && last < high) ? from : NULL;
    length = size < sizeof bytes ? size : sizeof bytes;
    memcpy(bytes, from, length);
    return say("work", stream, to);
}
const unsigned char *copied(void)
{
    if (late)
        memcpy(bytes, late, length);
    return bytes;
}

/* By these two the crate has the host wait for all streams. They fail where waits do. */
int cuMemAlloc_v2(handle *pointer, size_t size) { *pointer = 1; return failing_waits ? 2 : (int)(0 * size); }
int cuMemFree_v2(handle pointer) { return pointer != 1 || say("synchronize", 0, 0); }

/* Looked up by the crate, and not called here. */
int cuEventSynchronize(void) { return 1; }
int cuMemAllocHost_v2(void) { return 1; }
int cuMemFreeHost(void) { return 1; }
int cuMemcpyAsync(void) { return 1; }
int cuMemcpyPeerAsync(void) { return 1; }
int cuMemcpyDtoHAsync_v2(void) { return 1; }
int cuMemcpy2DAsync_v2(void) { return 1; }
int cuMemcpy3DAsync_v2(void) { return 1; }
int cuMemcpy3DPeerAsync(void) { return 1; }
