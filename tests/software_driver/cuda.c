/* A CUDA driver in software: each stream is a thread with a queue, so that work really runs late.
 * It is loaded as libcuda.so.1, under the library that `cai-bridge perturb` preloads.
 *
 * What it claims: one device, one context; device memory is the host's; the legacy default stream and
 * blocking streams wait for each other; an event is what a stream had queued when it was recorded; in a
 * capture work goes into a graph; a host that waits or asks beside it spoils it, and is refused, if its
 * mode forbids that to the thread (H100, driver 580.159); a legacy default stream beside a blocking one's
 * capture spoils it in any mode, and so does the question for a captured stream's flags. A spoilt capture
 * takes nothing more. A wait for an event of the capture takes a stream into it, whose work has to be
 * joined; a graph runs in the order in which it was captured. What cuGetProcAddress gives lies elsewhere
 * than what is exported.
 * Kernels are known by name: gate and tick as the preloaded library has them, and fill, copy, add,
 * spin, noise, put, get, seldom, follow, largest and gather, which are the programs' own. gather is given the
 * descriptor of an array, whose address no word of it is. soft_count says what was seen. Of structures the words that say
 * from where, to where and how much are read; of a 3D batch each operation is these three. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef unsigned R;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600 };
enum { UNSUPPORTED = 900, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT };
enum { GATE = 1, TICK, FILL, COPY, ADD, SPIN, NOISE, PUT, GET, SELDOM, FOLLOW, LARGEST, GATHER, BYTES, WAIT, CALL, BACK, SET, FREE, MOVE, UNTIL };
enum { RELAXED = 2, CONTEXT = 0x100000, SLOTS = 1 << 14, MOST = 256, EXTENTS = 4096 };

struct stream;
struct job { int kind; u64 a[6]; struct stream *on; u64 upto; };
struct graph { struct job jobs[512]; int count, spoilt; unsigned mode; pthread_t captor; struct stream *origin; };
struct stream {
  pthread_mutex_t lock; pthread_cond_t moved; pthread_t thread;
  struct job queue[SLOTS]; u64 done, queued;
  int blocking, forked; struct graph *capture;
};
struct event { struct stream *on; u64 upto; struct graph *in; };

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static struct stream *all[MOST], *legacy; static int streams, captures;
static struct { u64 from, size; int kind; u64 device; } extents[EXTENTS]; static int memories;
static u64 gates, longest, in_graphs, failing, moves, host_waits;
static __thread unsigned mode, own_default;
#pragma GCC visibility push(protected) /* no call from here goes by a hook */
static __thread struct stream *own;

static u64 at(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static u64 globaltimer(void) { return at(CLOCK_REALTIME); }
static void upto(struct stream *s, u64 n) {
  pthread_mutex_lock(&s->lock);
  while (s->done < n) pthread_cond_wait(&s->moved, &s->lock);
  pthread_mutex_unlock(&s->lock);
}
static void gate(struct job *j) {
  u64 start = globaltimer(), n;
  for (;;) {
    n = globaltimer();
    if ((int64_t)n >= (int64_t)j->a[2] || n - start >= j->a[3] || *(volatile u64 *)j->a[0] >= j->a[1]) break;
    usleep(20);
  }
  __atomic_add_fetch(&gates, j->a[3] != 0, __ATOMIC_SEQ_CST);
  if (n - start > longest) longest = n - start;
}
/* The device sees page-locked memory by addresses of its own, so the host's pages may be protected. */
static u64 seen_at(u64 p) {
  for (int i = 0; i < memories; i++)
    if (extents[i].device && p - extents[i].from < extents[i].size) return p - extents[i].from + extents[i].device;
  return p;
}
static void run(struct job *j) {
  if (j->kind != WAIT && j->kind != CALL && j->kind != BACK && j->kind != SPIN) j->a[0] = seen_at(j->a[0]);
  if (j->kind == COPY || j->kind == ADD || j->kind == GET || j->kind == SELDOM || j->kind == FOLLOW || j->kind == LARGEST || j->kind == BYTES) j->a[1] = seen_at(j->a[1]);
  volatile u64 *to = (volatile u64 *)j->a[0];
  switch (j->kind) {
    case GATE: gate(j); break;
    case TICK: *to = globaltimer(); break;
    case FILL: *to = j->a[1]; break;
    case COPY: *to = *(volatile u64 *)j->a[1]; break;
    case ADD: *to += *(volatile u64 *)j->a[1]; break;
    case SPIN: usleep(j->a[0]); break;
    case PUT: to[j->a[1]] = j->a[2]; break;
    case GET: *to = ((volatile u64 *)j->a[1])[j->a[2]]; break;
    case SELDOM: if (*(volatile u64 *)j->a[1] % 4 == 0) *to = j->a[2]; break;
    case FOLLOW: *to = **(volatile u64 **)j->a[1]; break;
    case LARGEST: { u64 n = 0; for (u64 i = 0; i < j->a[3]; i++) if (((volatile u64 *)j->a[1])[i] > n) n = ((volatile u64 *)j->a[1])[i]; *to = n; break; } /* its third argument is not used */
    case GATHER: *to = *(volatile u64 *)j->a[1]; break;
    case NOISE: *to = globaltimer(); break; /* another value each time; its second argument is not read */
    case BYTES: memmove((void *)j->a[0], (void *)j->a[1], j->a[2]); break;
    case WAIT: upto(j->on, j->upto); break;
    case CALL: ((void (*)(void *))j->a[0])((void *)j->a[1]); break;
    case BACK: ((void (*)(u64, R, void *))j->a[0])(j->a[2], SUCCESS, (void *)j->a[1]); break;
    case SET: for (u64 y = 0; y < j->a[5]; y++) for (u64 x = 0; x < j->a[2]; x++) memcpy((char *)j->a[0] + y * j->a[4] + x * j->a[3], &j->a[1], j->a[3]); break;
    case FREE: *to = 0xdead; break;
    case MOVE: moves++; break;
    case UNTIL: while (*to < j->a[1]) usleep(20); break;
  }
}
static void *work(void *given) {
  struct stream *s = given;
  for (;;) {
    pthread_mutex_lock(&s->lock);
    while (s->done == s->queued) pthread_cond_wait(&s->moved, &s->lock);
    struct job j = s->queue[s->done % SLOTS];
    pthread_mutex_unlock(&s->lock);
    run(&j);
    pthread_mutex_lock(&s->lock);
    s->done++;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
  }
  return NULL;
}
static struct stream *make(int blocking) {
  struct stream *s = calloc(1, sizeof *s);
  pthread_mutex_init(&s->lock, NULL); pthread_cond_init(&s->moved, NULL);
  s->blocking = blocking;
  pthread_mutex_lock(&table); if (streams < MOST) all[streams++] = s; pthread_mutex_unlock(&table);
  pthread_create(&s->thread, NULL, work, s); pthread_detach(s->thread);
  return s;
}
static struct stream *of(u64 handle) {
  if (handle > 2) return (struct stream *)handle;
  if (!handle && own_default) handle = 2;
  if (handle == 2) return own ? own : (own = make(1));
  pthread_mutex_lock(&table); struct stream *s = legacy; pthread_mutex_unlock(&table);
  if (!s) { s = make(1); pthread_mutex_lock(&table); legacy = s; pthread_mutex_unlock(&table); }
  return s;
}
static void append(struct stream *s, struct job j) {
  pthread_mutex_lock(&s->lock);
  while (s->queued - s->done >= SLOTS) pthread_cond_wait(&s->moved, &s->lock);
  s->queue[s->queued++ % SLOTS] = j;
  pthread_cond_broadcast(&s->moved);
  pthread_mutex_unlock(&s->lock);
}
/* The legacy default stream waits for all blocking streams, and they for it. */
static void join(struct stream *s) {
  if (!s->blocking) return;
  struct stream *first = of(1);
  if (s != first) { append(s, (struct job){ WAIT, { 0 }, first, first->queued }); return; }
  for (int i = 0; i < streams; i++) if (all[i] != s && all[i]->blocking) append(s, (struct job){ WAIT, { 0 }, all[i], all[i]->queued });
}
/* Whether the legacy default stream is used beside the capture of a blocking one, which that spoils. */
static int implicit(struct stream *s) {
  int found = 0;
  if (s == legacy && captures) for (int i = 0; i < streams; i++) if (all[i]->capture && all[i]->blocking && all[i] != s) found = all[i]->capture->spoilt = 1;
  return found;
}
static R push(u64 handle, struct job j) {
  struct stream *s = of(handle);
  if (s->capture) {
    if (s->capture->spoilt) return INVALIDATED;
    if (s->capture->count == 512) return OUT_OF_MEMORY;
    s->forked = s != s->capture->origin;
    if (j.kind == GATE || j.kind == TICK) in_graphs++;
    s->capture->jobs[s->capture->count++] = j;
    return SUCCESS;
  }
  if (implicit(s)) return IMPLICIT;
  join(s); append(s, j);
  return SUCCESS;
}
/* What is not safe beside a capture: by no thread in its mode 0, by its own thread in mode 1. */
static R is_unsafe(struct stream *of, int any_mode) {
  R r = SUCCESS;
  for (int i = 0; captures && i < streams; i++) {
    struct graph *g = all[i]->capture;
    if (!g) continue;
    int forbidden = mode != RELAXED && (g->mode == 0 || (g->mode == 1 && pthread_equal(g->captor, pthread_self())));
    if (forbidden || any_mode || all[i] == of) { g->spoilt = 1; r = UNSUPPORTED; }
  }
  return of && implicit(of) ? IMPLICIT : r;
}
/* What the host waits for, or asks. */
static R asks(struct stream *of, int any_mode) { host_waits += captures > 0; return is_unsafe(of, any_mode); }
static int kind_of(u64 p) {
  for (int i = 0; i < memories; i++) if (p - extents[i].from < extents[i].size) return extents[i].kind;
  return 0;
}
static u64 taken(u64 size, int kind) {
  if (memories == EXTENTS) return 0;
  u64 whole = (size + 4095) / 4096 * 4096, p, device = 0;
  if (kind == 1) {
    int file = memfd_create("page-locked", 0);
    if (file < 0 || ftruncate(file, whole)) return 0;
    p = (u64)mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    device = (u64)mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
  } else { p = (u64)aligned_alloc(4096, whole); memset((void *)p, 0, size); }
  pthread_mutex_lock(&table);
  extents[memories].device = device;
  extents[memories].from = p; extents[memories].size = size; extents[memories++].kind = kind;
  pthread_mutex_unlock(&table);
  return p;
}

/* For tests: 0 gates that were run, 1 the longest in nanoseconds, 2 gates in graphs, 3 prefetches, 4 waits and
 * questions of the host beside a capture. */
u64 soft_count(int which) { u64 counts[] = { gates, longest, in_graphs, moves, host_waits }; return counts[which]; }
/* From now on modules cannot be loaded. */
void soft_fail(void) { failing = 1; }

/* What cai_bridge itself asks besides. */
R cuGetErrorName(R code, const char **to) { (void)code; *to = "CUDA_ERROR_OF_SOFTWARE"; return SUCCESS; }
R cuDeviceGet(int *to, int ordinal) { *to = ordinal; return ordinal ? INVALID_VALUE : SUCCESS; }
R cuDeviceGetCount(int *to) { *to = 1; return SUCCESS; }
R cuDevicePrimaryCtxRetain(u64 *to, int device) { (void)device; *to = CONTEXT; return SUCCESS; }
R cuCtxGetDevice(int *to) { *to = 0; return SUCCESS; }
R cuPointerGetAttributes(unsigned count, const int *attributes, void **to, u64 p) {
  for (unsigned i = 0; i < count; i++) switch (attributes[i]) {
    case 1: *(u64 *)to[i] = CONTEXT; break;
    case 2: *(unsigned *)to[i] = kind_of(p); break;
    case 3: *(u64 *)to[i] = p; break;
    case 8: case 9: *(unsigned *)to[i] = 0; break; /* not managed; device 0 */
    default: return INVALID_VALUE;
  }
  return SUCCESS;
}
R cuStreamGetCaptureInfo_v2(u64 h, unsigned *status, u64 *id, u64 *graph, u64 **before, u64 *count) {
  struct stream *s = of(h);
  *status = s->capture != NULL;
  if (id) *id = (u64)s->capture;
  if (graph) *graph = (u64)s->capture;
  static __thread u64 last;
  if (s->capture && s->capture->count) last = (u64)&s->capture->jobs[s->capture->count - 1];
  if (before) *before = s->capture && s->capture->count ? &last : NULL;
  if (count) *count = s->capture && s->capture->count;
  return SUCCESS;
}
R cuInit(unsigned flags) { (void)flags; return SUCCESS; }
R cuCtxGetCurrent(u64 *to) { *to = CONTEXT; return SUCCESS; }
R cuCtxPushCurrent_v2(u64 context) { (void)context; return SUCCESS; }
R cuCtxPopCurrent_v2(u64 *to) { *to = CONTEXT; return SUCCESS; }
R cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { (void)device; *flags = 0; *active = 1; return SUCCESS; }
R cuStreamGetCtx(u64 s, u64 *to) { (void)s; *to = CONTEXT; return SUCCESS; }
R cuStreamGetFlags(u64 h, unsigned *to) { struct stream *s = of(h); if (s->capture) { s->capture->spoilt = 1; return UNSUPPORTED; } *to = !s->blocking; return SUCCESS; }
R cuStreamCreate(u64 *to, unsigned flags) { *to = (u64)make(!(flags & 1)); return SUCCESS; }
R cuStreamDestroy_v2(u64 s) { (void)s; return SUCCESS; }
R cuThreadExchangeStreamCaptureMode(unsigned *m) { unsigned old = mode; mode = *m; *m = old; return SUCCESS; }
R cuStreamIsCapturing(u64 h, unsigned *to) {
  struct stream *s = of(h);
  if (s == legacy && captures) for (int i = 0; i < streams; i++) if (all[i]->capture && all[i]->blocking && all[i] != s) return IMPLICIT;
  *to = s->capture != NULL;
  return SUCCESS;
}
R cuStreamBeginCaptureToGraph(u64 h, u64 graph, u64 before, u64 edges, u64 count, u64 m) {
  (void)before; (void)edges; (void)count;
  struct stream *s = of(h);
  if (s->capture) return INVALID_VALUE;
  s->capture = graph ? (struct graph *)graph : calloc(1, sizeof *s->capture);
  s->capture->mode = m; s->capture->captor = pthread_self(); s->capture->origin = s; s->capture->spoilt = 0; captures++;
  return SUCCESS;
}
R cuStreamBeginCapture_v2(u64 h, u64 m) { return cuStreamBeginCaptureToGraph(h, 0, 0, 0, 0, (unsigned)m); }
R cuStreamEndCapture(u64 h, u64 *to) {
  struct stream *s = of(h);
  struct graph *g = s->capture;
  if (!g) return INVALID_VALUE;
  if (g->origin != s) return UNMATCHED;
  int unjoined = 0;
  for (int i = 0; i < streams; i++) if (all[i]->capture == g) { unjoined |= all[i]->forked; all[i]->capture = NULL; all[i]->forked = 0; }
  captures--;
  *to = g->spoilt || unjoined ? 0 : (u64)g;
  return g->spoilt ? INVALIDATED : unjoined ? UNJOINED : SUCCESS;
}
R cuGraphCreate(u64 *to, unsigned flags) { (void)flags; *to = (u64)calloc(1, sizeof(struct graph)); return SUCCESS; }
R cuGraphInstantiateWithFlags(u64 *to, u64 graph, u64 flags) { (void)flags; *to = graph; return SUCCESS; }
R cuGraphLaunch(u64 graph, u64 h) { struct graph *g = (struct graph *)graph; for (int i = 0; i < g->count; i++) push(h, g->jobs[i]); return SUCCESS; }
/* A graph's jobs are its nodes. */
R cuGraphGetNodes(u64 graph, u64 *to, u64 *count) {
  struct graph *g = (struct graph *)graph;
  for (u64 i = 0; to && i < *count && i < (u64)g->count; i++) to[i] = (u64)&g->jobs[i];
  *count = g->count;
  return SUCCESS;
}
R cuGraphNodeGetType(u64 node, int *to) {
  int kind = ((struct job *)node)->kind;
  *to = kind <= GATHER ? 0 : kind == BYTES ? 1 : kind == SET ? 2 : kind == CALL || kind == BACK ? 3 : 5;
  return SUCCESS;
}
R cuGraphKernelNodeGetParams_v2(u64 node, u64 *to) {
  static __thread u64 *places[6];
  struct job *j = (struct job *)node;
  for (int i = 0; i < 6; i++) places[i] = &j->a[i];
  to[0] = j->kind; to[5] = (u64)places; to[6] = to[7] = to[8] = 0;
  return SUCCESS;
}
R cuGraphMemcpyNodeGetParams(u64 node, u64 *to) {
  struct job *j = (struct job *)node;
  memset(to, 0, 25 * sizeof *to);
  to[4] = to[15] = 2; to[6] = j->a[1]; to[17] = j->a[0]; to[22] = j->a[2]; to[23] = to[24] = 1;
  return SUCCESS;
}
R cuGraphMemsetNodeGetParams(u64 node, u64 *to) {
  struct job *j = (struct job *)node;
  to[0] = j->a[0]; to[1] = j->a[4]; to[2] = j->a[1] | j->a[3] << 32; to[3] = j->a[2]; to[4] = j->a[5];
  return SUCCESS;
}
R cuGraphInstantiate_v2(u64 *to, u64 graph, u64 *node, char *text, u64 size) { (void)node; (void)text; (void)size; return cuGraphInstantiateWithFlags(to, graph, 0); }
R cuGraphInstantiateWithParams(u64 *to, u64 graph, u64 *parameters) { (void)parameters; return cuGraphInstantiateWithFlags(to, graph, 0); }
R cuGraphExecUpdate_v2(u64 graph, u64 by, u64 *result) { (void)result; if (graph != by) *(struct graph *)graph = *(struct graph *)by; return SUCCESS; }
R cuGraphExecUpdate(u64 graph, u64 by, u64 *node, u64 *result) { (void)node; return cuGraphExecUpdate_v2(graph, by, result); }
/* A node's new arguments are those of another one. */
R cuGraphExecKernelNodeSetParams_v2(u64 graph, u64 node, u64 by) { (void)graph; *(struct job *)node = *(struct job *)by; return SUCCESS; }
R cuGraphExecKernelNodeSetParams(u64 graph, u64 node, u64 by) { return cuGraphExecKernelNodeSetParams_v2(graph, node, by); }
R cuGraphExecMemcpyNodeSetParams(u64 graph, u64 node, u64 by, u64 context) { (void)context; return cuGraphExecKernelNodeSetParams_v2(graph, node, by); }
R cuGraphExecMemsetNodeSetParams(u64 graph, u64 node, u64 by, u64 context) { (void)context; return cuGraphExecKernelNodeSetParams_v2(graph, node, by); }
R cuGraphExecChildGraphNodeSetParams(u64 graph, u64 node, u64 by) { return cuGraphExecKernelNodeSetParams_v2(graph, node, by); }
R cuGraphExecNodeSetParams(u64 graph, u64 node, u64 by) { return cuGraphExecKernelNodeSetParams_v2(graph, node, by); }
R cuGraphExecEventRecordNodeSetEvent(u64 graph, u64 node, u64 event) { (void)graph; (void)node; (void)event; return SUCCESS; }
R cuGraphExecEventWaitNodeSetEvent(u64 graph, u64 node, u64 event) { (void)graph; (void)node; (void)event; return SUCCESS; }
R cuGraphExecDestroy(u64 graph) { (void)graph; return SUCCESS; }
R cuTensorMapReplaceAddress(u64 *map, u64 address) { map[3] = ~address; return SUCCESS; }
R cuTensorMapEncodeTiled(u64 *map, int type, unsigned rank, u64 address, u64 *dims, u64 *strides, unsigned *box, unsigned *steps, int interleave, int swizzle, int promotion, int fill) {
  (void)type; (void)dims; (void)strides; (void)box; (void)steps; (void)interleave; (void)swizzle; (void)promotion; (void)fill;
  memset(map, 0, 128); map[0] = rank;
  return cuTensorMapReplaceAddress(map, address);
}
R cuTensorMapEncodeIm2col(u64 *map, int type, unsigned rank, u64 address, u64 *dims, u64 *strides, int *lower, int *upper, unsigned channels, unsigned pixels, unsigned *steps, int interleave, int swizzle, int promotion, int fill) {
  (void)lower; (void)upper; (void)channels; (void)pixels;
  return cuTensorMapEncodeTiled(map, type, rank, address, dims, strides, NULL, steps, interleave, swizzle, promotion, fill);
}
R cuLibraryUnload(u64 library) { (void)library; return SUCCESS; }
R cuStreamCreateWithPriority(u64 *to, u64 flags, u64 priority) { (void)priority; return cuStreamCreate(to, (unsigned)flags); }
R cuMemMap(u64 p, u64 size, u64 offset, u64 memory, u64 flags) { (void)p; (void)size; (void)offset; (void)memory; (void)flags; return SUCCESS; }
R cuMemUnmap(u64 p, u64 size) { (void)p; (void)size; return SUCCESS; }
R cuMemHostRegister_v2(u64 p, u64 size, u64 flags) { (void)p; (void)size; (void)flags; return SUCCESS; }
R cuIpcGetMemHandle(u64 *to, u64 p) { *to = p; return SUCCESS; }
R cuMemAlloc_v2(u64 *to, u64 size) { R r = is_unsafe(NULL, 0); if (r) return r; *to = taken(size, 2); return *to ? SUCCESS : OUT_OF_MEMORY; }
R cuMemHostAlloc(void **to, u64 size, unsigned flags) { (void)flags; R r = is_unsafe(NULL, 0); if (r) return r; *to = (void *)taken(size, 1); return *to ? SUCCESS : OUT_OF_MEMORY; }
R cuPointerGetAttribute(unsigned *to, int attribute, u64 p) { if (attribute != 2 || !kind_of(p)) return INVALID_VALUE; *to = kind_of(p); return SUCCESS; }
R cuModuleLoadData(u64 *to, const void *image) { (void)image; *to = 5; R r = is_unsafe(NULL, 0); return r ? r : failing ? INVALID_VALUE : SUCCESS; }
static const struct { const char *name; int count; } KERNELS[] = { { "", 0 }, { "gate", 4 }, { "tick", 1 }, { "fill", 2 }, { "copy", 2 }, { "add", 2 }, { "spin", 1 }, { "noise", 2 }, { "put", 3 }, { "get", 3 }, { "seldom", 3 }, { "follow", 2 }, { "largest", 4 }, { "gather", 2 } };
R cuModuleGetFunction(u64 *to, u64 module, const char *name) {
  (void)module;
  for (int i = 1; i <= GATHER; i++) if (!strcmp(name, KERNELS[i].name)) { *to = i; return SUCCESS; }
  return NOT_FOUND;
}
R cuFuncGetName(const char **to, u64 f) { if (f < GATE || f > GATHER) return INVALID_VALUE; *to = KERNELS[f].name; return SUCCESS; }
static int descriptor(u64 f, u64 i) { return f == GATHER && i == 1; }
R cuFuncGetParamInfo(u64 f, u64 i, u64 *offset, u64 *size) { if (f < GATE || f > GATHER || i >= (u64)KERNELS[f].count) return INVALID_VALUE; *offset = descriptor(f, i) ? 64 : 8 * i; *size = descriptor(f, i) ? 128 : 8; return SUCCESS; }
R cuLaunchKernel(u64 f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, u64 s, u64 **p, void *extra) {
  (void)x; (void)y; (void)z; (void)bx; (void)by; (void)bz; (void)shared; (void)extra;
  if (f < GATE || f > GATHER) return INVALID_VALUE;
  struct job j = { (int)f, { 0 }, NULL, 0 };
  for (int i = 0; i < KERNELS[f].count; i++) j.a[i] = descriptor(f, i) ? ~p[i][3] : *p[i];
  return push(s, j);
}
R cuLaunchCooperativeKernel(u64 f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, u64 s, u64 **p) { return cuLaunchKernel(f, x, y, z, bx, by, bz, shared, s, p, NULL); }
R cuLaunchKernelEx(u64 *config, u64 f, u64 **p, void *extra) { return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, config[4], p, extra); }
R cuLaunchHostFunc(u64 s, u64 f, u64 data) { return push(s, (struct job){ CALL, { f, data }, NULL, 0 }); }
R cuStreamAddCallback(u64 s, u64 f, u64 data, u64 flags) { (void)flags; return push(s, (struct job){ BACK, { f, data, s }, NULL, 0 }); }
R cuStreamQuery(u64 h) {
  struct stream *s = of(h);
  R r = asks(s, 0);
  if (r) return r;
  pthread_mutex_lock(&s->lock); int busy = s->done < s->queued; pthread_mutex_unlock(&s->lock);
  return busy ? NOT_READY : SUCCESS;
}
R cuStreamSynchronize(u64 h) { struct stream *s = of(h); R r = asks(s, 0); if (r) return r; if (s == legacy) join(s); upto(s, s->queued); return SUCCESS; }
static R everything(int any_mode) { R r = asks(NULL, any_mode); if (r) return r; for (int i = 0; i < streams; i++) upto(all[i], all[i]->queued); return SUCCESS; }
R cuCtxSynchronize(void) { return everything(1); }
R cuCtxSynchronize_v2(u64 context) { (void)context; return everything(1); }
R cuMemFree_v2(u64 p) { (void)p; return everything(0); }
R cuMemFreeHost(u64 p) { (void)p; return everything(0); }
R cuMemHostUnregister(u64 p) { (void)p; return everything(0); }
R cuModuleUnload(u64 module) { (void)module; return everything(0); }
R cuMemAllocHost_v2(void **to, u64 size) { return cuMemHostAlloc(to, size, 0); }
R cuCtxDestroy_v2(u64 context) { (void)context; return SUCCESS; }
R cuDevicePrimaryCtxReset_v2(u64 device) { (void)device; return SUCCESS; }
R cuDevicePrimaryCtxRelease_v2(u64 device) { (void)device; return SUCCESS; }
R cuEventCreate(u64 *to, unsigned flags) { (void)flags; *to = (u64)calloc(1, sizeof(struct event)); return SUCCESS; }
R cuEventRecord(u64 e, u64 h) {
  struct event *x = (struct event *)e; struct stream *s = of(h);
  if (implicit(s)) return IMPLICIT;
  if ((x->in = s->capture)) { x->on = s; return s->capture->spoilt ? INVALIDATED : SUCCESS; }
  join(s); x->on = s; x->upto = s->queued;
  return SUCCESS;
}
R cuEventRecordWithFlags(u64 e, u64 h, u64 flags) { (void)flags; return cuEventRecord(e, h); }
R cuEventDestroy_v2(u64 e) { (void)e; return SUCCESS; }
/* An event of a capture stands for work that is not queued. */
static R is_captured(struct event *x) { if (!x->in) return asks(NULL, 0); x->in->spoilt = 1; return CAPTURED_EVENT; }
R cuEventQuery(u64 e) { struct event *x = (struct event *)e; R r = is_captured(x); if (r) return r; return x->on && x->on->done < x->upto ? NOT_READY : SUCCESS; }
R cuEventElapsedTime(float *to, u64 start, u64 end) { R r = cuEventQuery(start); if (!r) r = cuEventQuery(end); *to = 0; return r; }
R cuEventElapsedTime_v2(float *to, u64 start, u64 end) { return cuEventElapsedTime(to, start, end); }
R cuEventSynchronize(u64 e) { struct event *x = (struct event *)e; R r = is_captured(x); if (r) return r; if (x->on) upto(x->on, x->upto); return SUCCESS; }
R cuStreamWaitEvent(u64 h, u64 e, unsigned flags) {
  struct event *x = (struct event *)e; struct stream *s = of(h); struct graph *g = s->capture;
  if (implicit(s)) return IMPLICIT;
  if (g && g->spoilt) return INVALIDATED;
  if (g && !x->in) { if (flags & 1) return SUCCESS; g->spoilt = 1; return ISOLATION; }
  if (g && g != x->in) { g->spoilt = x->in->spoilt = 1; return MERGE; }
  if (x->in && x->in->origin->capture != x->in) return INVALID_VALUE;
  if (x->in) { s->capture = x->in; if (x->on != s) x->on->forked = 0; return SUCCESS; }
  join(s); if (x->on) append(s, (struct job){ WAIT, { 0 }, x->on, x->upto });
  return SUCCESS;
}
static R copy(u64 to, u64 from, u64 size, u64 s) {
  R r = push(s, (struct job){ BYTES, { to, from, size }, NULL, 0 });
  if (!r && (!kind_of(to) || !kind_of(from))) upto(of(s), of(s)->queued); /* pageable memory */
  return r;
}
static R now(u64 to, u64 from, u64 size) { R r = copy(to, from, size, 0); upto(of(0), of(0)->queued); return r; }
static R set(u64 p, u64 pitch, u64 value, u64 bytes, u64 width, u64 height, u64 s) { return push(s, (struct job){ SET, { p, value, width, bytes, pitch, height }, NULL, 0 }); }
R cuMemcpyAsync(u64 to, u64 from, u64 size, u64 s) { return copy(to, from, size, s); }
R cuMemcpyDtoHAsync_v2(u64 to, u64 from, u64 size, u64 s) { return copy(to, from, size, s); }
R cuMemcpyHtoDAsync_v2(u64 to, u64 from, u64 size, u64 s) { return copy(to, from, size, s); }
R cuMemcpyDtoDAsync_v2(u64 to, u64 from, u64 size, u64 s) { return copy(to, from, size, s); }
R cuMemcpyPeerAsync(u64 to, u64 there, u64 from, u64 here, u64 size, u64 s) { (void)there; (void)here; return copy(to, from, size, s); }
R cuMemcpy2DAsync_v2(u64 *c, u64 s) { return copy(c[11], c[4], c[14] * c[15], s); }
R cuMemcpy3DAsync_v2(u64 *c, u64 s) { return copy(c[17], c[6], c[22] * c[23] * c[24], s); }
R cuMemcpy3DPeerAsync(u64 *c, u64 s) { return cuMemcpy3DAsync_v2(c, s); }
R cuMemcpyBatchAsync_v2(u64 *to, u64 *from, u64 *sizes, u64 count, u64 a, u64 b, u64 c, u64 s) {
  (void)a; (void)b; (void)c;
  R r = SUCCESS;
  for (u64 i = 0; !r && i < count; i++) r = copy(to[i], from[i], sizes[i], s);
  return r;
}
R cuMemcpyBatchAsync(u64 *to, u64 *from, u64 *sizes, u64 count, u64 a, u64 b, u64 c, u64 failed, u64 s) { (void)failed; return cuMemcpyBatchAsync_v2(to, from, sizes, count, a, b, c, s); }
R cuMemcpy3DBatchAsync_v2(u64 count, u64 *c, u64 flags, u64 s) { (void)flags; R r = SUCCESS; for (; !r && count--; c += 3) r = copy(c[0], c[1], c[2], s); return r; }
R cuMemcpy3DBatchAsync(u64 count, u64 *c, u64 failed, u64 flags, u64 s) { (void)failed; return cuMemcpy3DBatchAsync_v2(count, c, flags, s); }
R cuMemsetD8Async(u64 p, u64 v, u64 n, u64 s) { return set(p, 0, v, 1, n, 1, s); }
R cuMemsetD16Async(u64 p, u64 v, u64 n, u64 s) { return set(p, 0, v, 2, n, 1, s); }
R cuMemsetD32Async(u64 p, u64 v, u64 n, u64 s) { return set(p, 0, v, 4, n, 1, s); }
R cuMemsetD2D8Async(u64 p, u64 pitch, u64 v, u64 w, u64 h, u64 s) { return set(p, pitch, v, 1, w, h, s); }
R cuMemsetD2D16Async(u64 p, u64 pitch, u64 v, u64 w, u64 h, u64 s) { return set(p, pitch, v, 2, w, h, s); }
R cuMemsetD2D32Async(u64 p, u64 pitch, u64 v, u64 w, u64 h, u64 s) { return set(p, pitch, v, 4, w, h, s); }
R cuStreamWaitValue64_v2(u64 s, u64 p, u64 v, u64 flags) { (void)flags; return push(s, (struct job){ UNTIL, { p, v }, NULL, 0 }); }
R cuMemAllocAsync(u64 *to, u64 size, u64 s) { (void)s; *to = taken(size, 2); return *to ? SUCCESS : OUT_OF_MEMORY; }
R cuStreamWaitValue32_v2(u64 s, u64 p, u64 v, u64 flags) { return cuStreamWaitValue64_v2(s, p, v, flags); }
R cuStreamBatchMemOp_v2(u64 s, u64 count, u64 *operations, u64 flags) { (void)s; (void)count; (void)operations; (void)flags; return SUCCESS; }
R cuWaitExternalSemaphoresAsync(u64 *semaphores, u64 *parameters, u64 count, u64 s) { (void)semaphores; (void)parameters; (void)count; (void)s; return SUCCESS; }
R cuMemAllocFromPoolAsync(u64 *to, u64 size, u64 pool, u64 s) { (void)pool; return cuMemAllocAsync(to, size, s); }
R cuMemAllocManaged(u64 *to, u64 size, u64 flags) { (void)flags; *to = taken(size, 2); return *to ? SUCCESS : OUT_OF_MEMORY; }
R cuMemAllocPitch_v2(u64 *to, u64 *pitch, u64 width, u64 height, u64 element) { (void)element; *pitch = (width + 511) / 512 * 512; return cuMemAlloc_v2(to, *pitch * height); }
R cuMemFreeAsync(u64 p, u64 s) { return push(s, (struct job){ FREE, { p }, NULL, 0 }); }
R cuMemPrefetchAsync(u64 p, u64 n, u64 device, u64 s) { (void)p; (void)n; (void)device; return push(s, (struct job){ MOVE, { 0 }, NULL, 0 }); }
R cuMemPrefetchAsync_v2(u64 p, u64 n, u64 place, u64 flags, u64 s) { (void)place; (void)flags; return cuMemPrefetchAsync(p, n, 0, s); }
R cuStreamWriteValue32_v2(u64 s, u64 p, u64 v, u64 flags) { (void)flags; return set(p, 0, v, 4, 1, 1, s); }
R cuStreamWriteValue64_v2(u64 s, u64 p, u64 v, u64 flags) { (void)flags; return set(p, 0, v, 8, 1, 1, s); }
R cuMemcpyDtoD_v2(u64 to, u64 from, u64 size) { return copy(to, from, size, 0); }
R cuMemsetD8_v2(u64 p, u64 v, u64 n) { return set(p, 0, v, 1, n, 1, 0); }
R cuMemsetD16_v2(u64 p, u64 v, u64 n) { return set(p, 0, v, 2, n, 1, 0); }
R cuMemsetD32_v2(u64 p, u64 v, u64 n) { return set(p, 0, v, 4, n, 1, 0); }
R cuMemcpy(u64 to, u64 from, u64 size) { return now(to, from, size); }
R cuMemcpyDtoH_v2(u64 to, u64 from, u64 size) { return now(to, from, size); }
/* What is small is staged: the host goes on before it is there. */
R cuMemcpyHtoD_v2(u64 to, u64 from, u64 size) {
  if (size > 65536 || kind_of(from)) return now(to, from, size);
  upto(of(0), of(0)->queued);
  R r = push(0, (struct job){ SPIN, { 300 }, NULL, 0 });
  return r ? r : push(0, (struct job){ BYTES, { to, (u64)memcpy(malloc(size), (void *)from, size), size }, NULL, 0 });
}
R cuMemcpy2D_v2(u64 *c) { return now(c[11], c[4], c[14] * c[15]); }
R cuMemcpy2DUnaligned_v2(u64 *c) { return now(c[11], c[4], c[14] * c[15]); }
R cuMemcpyAtoH_v2(u64 to, u64 array, u64 offset, u64 size) { (void)to; (void)array; (void)offset; (void)size; upto(of(0), of(0)->queued); return SUCCESS; }
R cuMemcpyHtoA_v2(u64 array, u64 offset, u64 from, u64 size) { return cuMemcpyAtoH_v2(from, array, offset, size); }
R cuMemcpy3DPeer(u64 *c) { return now(c[17], c[6], c[22] * c[23] * c[24]); }
R cuMemcpy3D_v2(u64 *c) { return now(c[17], c[6], c[22] * c[23] * c[24]); }

static void *opaque(void *p) { __asm__("" : "+r"(p)); return p; }
#include "table.h"
#define ROW1(name, version, symbol, n) { #name, version, (void *)given_##symbol, NULL },
#define ROW2(name, version, symbol, end, n) { #name, version, (void *)given_##symbol, (void *)given_##symbol##end },
static const struct { const char *name; int version; void *function, *twin; } GIVEN[] = { TABLE(ROW1, ROW2) };
R cuGetProcAddress_v2(const char *name, void **to, int version, u64 flags, int *status) {
  int best = -1;
  if (status) *status = 0;
  *to = NULL;
  for (unsigned i = 0; i < sizeof GIVEN / sizeof *GIVEN; i++)
    if (!strcmp(name, GIVEN[i].name) && GIVEN[i].version <= version && GIVEN[i].version > best) {
      best = GIVEN[i].version;
      *to = flags & 2 && GIVEN[i].twin ? GIVEN[i].twin : GIVEN[i].function;
    }
  return *to ? SUCCESS : NOT_FOUND;
}
R cuGetProcAddress(const char *name, void **to, int version, u64 flags) { return cuGetProcAddress_v2(name, to, version, flags, NULL); }
