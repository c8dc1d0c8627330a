/* SPDX-License-Identifier: BSD-3-Clause */
/* /kvroute/capture: set-up, the writing thread, and the command. */
#include "telemetry/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pcap/namedb.h> /* after pcap.h */

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_pcapng.h>
#include <rte_telemetry.h>

#include "control/control.h"
#include "control/log.h"
#include "control/shared.h"
#include "kvr_rings.h"
#include "kvr_telemetry.h"

#define COPIES	    2047u /* buffers, and entries of the ring */
#define SECONDS_MAX 3600u
#define PAUSE_NS    1000000 /* sleep of the thread without work */

uint64_t capture_most = UINT64_C(1) << 30;

/* The one capture; under kvr_telemetry_lock() unless stated otherwise. */
static struct {
	struct router *rt;
	struct capture c;
	rte_pcapng_t *file;
	pthread_t thread;
	bool running; /* the thread must be joined */
	struct kvr_port *of;
	uint16_t ethdev, queues;
	int fd; /* of the file */
	char name[256], port[64];
	uint32_t seconds;
	uint64_t bound;		/* limit in bytes */
	bool full;		/* the next frames do not fit; the thread */
	_Atomic int quit;	/* request to end; written by the requester, read by the thread */
	_Atomic int ended;	/* written by the thread at its end */
	_Atomic uint64_t bytes; /* bytes written; written by the thread */
	_Atomic uint64_t lost;	/* copies that the file did not take; written by the thread */
	_Atomic int error;	/* error of the file, negative errno; written by the thread */
} cap;

/* ---- the thread ---- */

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A full file system accepts part of a block, and librte_pcapng does not check. The incomplete
 * block is removed, because readers follow the blocks. */
static int write_whole(struct rte_mbuf *m[], unsigned int n, uint64_t bytes)
{
	const off_t at = lseek(cap.fd, 0, SEEK_CUR);
	const ssize_t rc = rte_pcapng_write_packets(cap.file, m, (uint16_t)n);
	int why = rte_errno != 0 ? rte_errno : EIO;

	if (rc == (ssize_t)bytes)
		return 0;
	if (rc >= 0) /* the next write returns the reason */
		why = write(cap.fd, "", 1) < 0 ? errno : EIO;
	(void)!ftruncate(cap.fd, at);
	return -why;
}

/* @return frames processed, or -errno; the copies are freed in any case. */
static int write_some(void)
{
	struct rte_mbuf *m[32];
	const unsigned int n = rte_ring_sc_dequeue_burst(cap.c.ring, (void **)m, RTE_DIM(m), NULL);
	uint64_t bytes = 0;
	int rc = 0;

	for (unsigned int i = 0; i < n; i++)
		bytes += m[i]->pkt_len;
	cap.full = cap.full ||
		   bytes > cap.bound - atomic_load_explicit(&cap.bytes, memory_order_relaxed);
	if (n > 0 && !cap.full)
		rc = write_whole(m, n, bytes);
	rte_pktmbuf_free_bulk(m, n);
	/* Telemetry reads whole words; guards no other data. */
	if (rc < 0 || cap.full)
		atomic_fetch_add_explicit(&cap.lost, n, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&cap.bytes, bytes, memory_order_relaxed);
	return rc < 0 ? rc : (int)n;
}

static void remove_taps(void)
{
	for (uint16_t q = 0; q < cap.queues; q++) {
		if (cap.c.rx[q].callback != NULL)
			rte_eth_remove_rx_callback(cap.ethdev, q, cap.c.rx[q].callback);
		if (cap.c.tx[q].callback != NULL)
			rte_eth_remove_tx_callback(cap.ethdev, q, cap.c.tx[q].callback);
	}
	lcores_pass(cap.rt); /* no lcore is inside a callback any more */
	for (uint16_t q = 0; q < cap.queues; q++) {
		rte_free((void *)(uintptr_t)cap.c.rx[q].callback);
		rte_free((void *)(uintptr_t)cap.c.tx[q].callback);
		cap.c.rx[q].callback = cap.c.tx[q].callback = NULL;
	}
}

static void release_buffers(void)
{
	struct rte_mbuf *m;

	while (cap.c.ring != NULL && rte_ring_sc_dequeue(cap.c.ring, (void **)&m) == 0) {
		atomic_fetch_add_explicit(&cap.lost, 1, memory_order_relaxed);
		rte_pktmbuf_free(m);
	}
	if (cap.file != NULL)
		rte_pcapng_close(cap.file);
	rte_bpf_destroy(cap.c.filter);
	rte_ring_free(cap.c.ring);
	rte_mempool_free(cap.c.pool);
	cap.file = NULL;
	cap.c.filter = NULL;
	cap.c.ring = NULL;
	cap.c.pool = NULL;
}

/* Frames in the file, or missed because a buffer, a ring entry or space in the file was missing. */
static uint64_t sum_taps(bool missed)
{
	const uint64_t lost = atomic_load_explicit(&cap.lost, memory_order_relaxed);
	uint64_t n = 0;

	for (uint16_t q = 0; q < cap.queues; q++)
		n += missed ? kvr_cell_get(&cap.c.rx[q].missed) + kvr_cell_get(&cap.c.tx[q].missed)
			    : kvr_cell_get(&cap.c.rx[q].kept) + kvr_cell_get(&cap.c.tx[q].kept);
	/* A tap counts frames put into the ring, which the thread may have lost later. */
	return missed ? n + lost : n - RTE_MIN(n, lost);
}

static void *write_file(void *arg)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	const uint64_t until = clock_ns() + cap.seconds * UINT64_C(1000000000);
	int rc = 0;

	RTE_SET_USED(arg);
	/* Pairs with the release store in end_capture(). */
	while (rc >= 0 && !cap.full && !atomic_load_explicit(&cap.quit, memory_order_acquire) &&
	       clock_ns() < until) {
		rc = write_some();
		if (rc == 0)
			nanosleep(&pause, NULL);
	}
	remove_taps();
	while (rc >= 0 && (rc = write_some()) > 0)
		;
	release_buffers();
	atomic_store_explicit(&cap.error, RTE_MIN(rc, 0), memory_order_relaxed);
	log_line(
		KVR_LOG_ABOUT(.level = rc < 0 ? KVR_LOG_WARNING : KVR_LOG_NOTICE, .port = cap.port),
		"capture of port %s to %s ended: %s%s%" PRIu64 " frames, %" PRIu64 " missed",
		cap.port, cap.name,
		rc < 0	   ? strerror(-rc)
		: cap.full ? "file size limit reached"
			   : "",
		rc < 0 || cap.full ? ", " : "", sum_taps(false), sum_taps(true));
	/* Pairs with the acquire load in under_way(): the file is complete. */
	atomic_store_explicit(&cap.ended, 1, memory_order_release);
	return NULL;
}

/* ---- start and end; under kvr_telemetry_lock() ---- */

static bool under_way(void)
{
	/* Pairs with the release store in write_file(). */
	return cap.running && !atomic_load_explicit(&cap.ended, memory_order_acquire);
}

static void end_capture(void)
{
	if (!cap.running)
		return;
	/* Pairs with the acquire load in write_file(). */
	atomic_store_explicit(&cap.quit, 1, memory_order_release);
	pthread_join(cap.thread, NULL);
	cap.running = false;
}

/* libpcap resolves names in a filter with these functions. Only addresses are supported: a slow
 * name server would hold kvr_telemetry_lock(), and thereby workers and clients. */
struct addrinfo *pcap_nametoaddrinfo(const char *name)
{
	const struct addrinfo how = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;

	return getaddrinfo(name, NULL, &how, &found) == 0 ? found : NULL;
}

bpf_u_int32 pcap_nametonetaddr(const char *name)
{
	RTE_SET_USED(name);
	return 0;
}

static struct rte_bpf *compile_filter(const char *text, uint32_t snap, char *err, size_t errlen)
{
	pcap_t *p = pcap_open_dead(DLT_EN10MB, (int)snap);
	struct bpf_program program;
	struct rte_bpf_prm *prm = NULL;
	struct rte_bpf *bpf = NULL;

	err[0] = '\0';
	if (p != NULL && pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN) == 0) {
		prm = rte_bpf_convert(&program);
		pcap_freecode(&program);
		bpf = prm != NULL ? rte_bpf_load(prm) : NULL;
		if (bpf == NULL)
			snprintf(err, errlen, "cannot compile the filter: %s",
				 rte_strerror(rte_errno));
	} else {
		snprintf(err, errlen, "%s", p != NULL ? pcap_geterr(p) : "no memory");
	}
	rte_free(prm);
	if (p != NULL)
		pcap_close(p);
	return bpf;
}

static int allocate_buffers(uint32_t snap)
{
	static unsigned int round;
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "capture_%u", round++);
	cap.c.snap = snap;
	cap.c.pool = kvr_rings_mbufs(name, COPIES, 0, (uint16_t)rte_pcapng_mbuf_size(snap),
				     SOCKET_ID_ANY);
	cap.c.ring = kvr_rings_create(name, sizeof(void *), COPIES + 1, SOCKET_ID_ANY);
	return cap.c.pool != NULL && cap.c.ring != NULL ? 0 : -ENOMEM;
}

static void init_tap(struct capture_tap *t, uint16_t queue)
{
	t->capture = &cap.c;
	t->queue = kvr_port_queue(cap.of, queue);
	t->callback = NULL;
	atomic_init(&t->kept, 0);
	atomic_init(&t->missed, 0);
}

static int add_taps(void)
{
	for (uint16_t q = 0; q < cap.queues; q++) {
		init_tap(&cap.c.rx[q], q);
		init_tap(&cap.c.tx[q], q);
	}
	for (uint16_t q = 0; q < cap.queues; q++) {
		cap.c.rx[q].callback =
			rte_eth_add_rx_callback(cap.ethdev, q, capture_rx, &cap.c.rx[q]);
		cap.c.tx[q].callback =
			rte_eth_add_tx_callback(cap.ethdev, q, capture_tx, &cap.c.tx[q]);
		if (cap.c.rx[q].callback == NULL || cap.c.tx[q].callback == NULL) {
			remove_taps();
			return -rte_errno;
		}
	}
	return 0;
}

/* Declare only the captured port as interface: rte_pcapng_fdopen() describes only ports without
 * owner, and frames of other ports would refer to an interface that the file lacks, which readers
 * reject. */
static rte_pcapng_t *open_file(int fd, int *why)
{
	struct rte_eth_dev_owner owner = {.id = RTE_ETH_DEV_NO_OWNER};
	rte_pcapng_t *file;

	if (rte_eth_dev_owner_get(cap.ethdev, &owner) == 0 && owner.id != RTE_ETH_DEV_NO_OWNER)
		rte_eth_dev_owner_unset(cap.ethdev, owner.id);
	errno = 0;
	file = rte_pcapng_fdopen(fd, NULL, NULL, "kvroute", NULL);
	*why = errno != 0 ? errno : EIO;
	if (owner.id != RTE_ETH_DEV_NO_OWNER)
		rte_eth_dev_owner_set(cap.ethdev, &owner);
	return file;
}

/* Set up everything that can fail, then the taps, then the thread. @return false: the answer
 * contains the error. */
static bool begin_capture(struct kvr_port *p, const char *filter, struct rte_tel_data *d)
{
	struct kvr_port_info i;
	char err[PCAP_ERRBUF_SIZE];
	int fd, rc, why;

	atomic_store_explicit(&cap.bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&cap.lost, 0, memory_order_relaxed);
	atomic_store_explicit(&cap.error, 0, memory_order_relaxed);
	kvr_port_info(p, &i);
	cap.of = p;
	cap.ethdev = i.ethdev;
	cap.queues = i.queues;
	if (allocate_buffers((uint32_t)i.mtu + RTE_ETHER_HDR_LEN + 2 * RTE_VLAN_HLEN) < 0)
		return kvr_telemetry_error(d, ENOMEM, "no memory for %u copies", COPIES) != 0;
	if (filter[0] != '\0') {
		cap.c.filter = compile_filter(filter, cap.c.snap, err, sizeof(err));
		if (cap.c.filter == NULL)
			return kvr_telemetry_error(d, EINVAL, "filter \"%.64s\": %s", filter,
						   err) != 0;
	}
	fd = open(cap.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return kvr_telemetry_error(d, errno, "cannot create \"%s\": %s", cap.name,
					   strerror(errno)) != 0;
	cap.fd = fd;
	cap.file = open_file(fd, &why);
	if (cap.file == NULL) {
		close(fd);
		return kvr_telemetry_error(d, why, "cannot write \"%s\": %s", cap.name,
					   strerror(why)) != 0;
	}
	cap.bound = capture_most - RTE_MIN(capture_most, (uint64_t)lseek(fd, 0, SEEK_CUR));
	rc = add_taps();
	if (rc < 0)
		return kvr_telemetry_error(d, -rc, "the device does not support callbacks: %s",
					   strerror(-rc)) != 0;
	atomic_store_explicit(&cap.quit, 0, memory_order_relaxed);
	atomic_store_explicit(&cap.ended, 0, memory_order_relaxed);
	rc = pthread_create(&cap.thread, NULL, write_file, NULL);
	if (rc != 0) {
		remove_taps();
		return kvr_telemetry_error(d, rc, "no thread: %s", strerror(rc)) != 0;
	}
	cap.running = true;
	return true;
}

/* ---- the command ---- */

static int add_status(struct rte_tel_data *d)
{
	const int error = atomic_load_explicit(&cap.error, memory_order_relaxed);

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "state",
				     under_way()	   ? "running"
				     : error != 0	   ? strerror(-error)
				     : cap.name[0] != '\0' ? "ended"
							   : "none yet");
	rte_tel_data_add_dict_string(d, "port", cap.port);
	rte_tel_data_add_dict_string(d, "file", cap.name);
	rte_tel_data_add_dict_u64(d, "frames", sum_taps(false));
	rte_tel_data_add_dict_u64(d, "missed", sum_taps(true));
	rte_tel_data_add_dict_u64(d, "bytes",
				  atomic_load_explicit(&cap.bytes, memory_order_relaxed));
	return 0;
}

static struct kvr_port *find_port(struct router *rt, const char *name)
{
	for (uint32_t i = 0; i < rt->n_ports; i++)
		if (strcmp(rt->conf.port[i].name, name) == 0)
			return rt->port[i];
	return NULL;
}

static int cmd_capture(void *arg, const char *params, struct rte_tel_data *d)
{
	char text[1024], *save = NULL, *port, *file, *seconds, *end = NULL;
	struct router *rt = arg;
	struct kvr_port *p;

	if (params == NULL || params[0] == '\0')
		return add_status(d);
	if (!under_way())
		end_capture(); /* the file of the last capture is closed */
	if (strcmp(params, "stop") == 0) {
		end_capture();
		return add_status(d);
	}
	if (cap.running)
		return kvr_telemetry_error(
			d, EBUSY, "a capture of port %s to \"%s\" is running; \"stop\" ends it",
			cap.port, cap.name);
	snprintf(text, sizeof(text), "%s", params);
	port = strtok_r(text, ",", &save);
	file = strtok_r(NULL, ",", &save);
	seconds = strtok_r(NULL, ",", &save);
	p = port != NULL ? find_port(rt, port) : NULL;
	cap.seconds = seconds != NULL ? (uint32_t)strtoul(seconds, &end, 10) : 0;
	if (p == NULL && file != NULL)
		return kvr_telemetry_error(d, ENOENT, "no port \"%.64s\"", port);
	if (p == NULL || file == NULL || file[0] != '/' || strlen(file) >= sizeof(cap.name) ||
	    end == NULL || *end != '\0' || cap.seconds < 1 || cap.seconds > SECONDS_MAX)
		return kvr_telemetry_error(
			d, EINVAL,
			"got \"%.64s\", allowed: PORT,/NEW/FILE,SECONDS[,FILTER] with 1 to %u seconds, or stop",
			params, SECONDS_MAX);
	cap.rt = rt;
	cap.full = false;
	snprintf(cap.name, sizeof(cap.name), "%s", file);
	snprintf(cap.port, sizeof(cap.port), "%s", port);
	cap.fd = -1;
	if (!begin_capture(p, save != NULL ? save : "", d)) {
		release_buffers();
		if (cap.fd >= 0)
			unlink(cap.name); /* created here, and empty */
		cap.name[0] = cap.port[0] = '\0';
		cap.queues = 0;
		return 0;
	}
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .port = cap.port),
		 "capture of port %s to %s started for %u s", cap.port, cap.name, cap.seconds);
	return add_status(d);
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/capture", "[PORT,FILE,SECONDS[,FILTER]|stop]",
	 "capture frames of a port to a new pcapng file, at most 1 GiB; without arguments: status",
	 cmd_capture, true},
	{NULL, NULL, NULL, NULL, false},
};

int captures_start(struct router *rt)
{
	const int rc = shared_clock_begin();

	return rc < 0 ? rc : kvr_telemetry_register(commands, rt);
}

void captures_stop(struct router *rt)
{
	RTE_SET_USED(rt);
	kvr_telemetry_unregister(commands);
	end_capture();
}
