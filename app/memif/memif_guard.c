/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_memif of DPDK 22.11 trusts its peers and has races with packet lcores. All its work for a
 * peer happens on the EAL's interrupt thread, through a few functions of the C library. This file
 * replaces these functions on that thread; on other threads, except for connect(), they only make
 * the system call.
 *
 * - munmap: The driver unmaps the rings of a peer that has left while a packet lcore may still be
 *   inside its receive or transmit call, which then faults. The driver clears its "connected" flag
 *   first, so that only calls in progress are at risk: this function waits for them before it
 *   unmaps.
 *
 * - mmap: The memory of a new peer has no pages in this process. A packet lcore would take up to
 *   2,200 page faults in its first pass over the rings. The pages are populated here, up to the
 *   size that rings of frames can need.
 *
 * - sendmsg: If the peer has closed the connection, the greeting cannot be sent. The driver then
 *   closes the socket but leaves it among the EAL's interrupt sources; the EAL polls a closed file
 *   and panics. A failed send is therefore reported as successful and the connection is shut down:
 *   the hang-up event makes the driver remove source and socket. The send does not block, because
 *   a peer that does not read would stop the thread. A burst call reads the address of a ring
 *   before it checks "connected". A call that starts before the rings are mapped and continues
 *   afterwards would use an invalid address. No lcore is therefore inside the driver from the
 *   connect message until the driver has sent its answer.
 *
 * - recvmsg: The driver does not check the order of messages, the number of rings and their
 *   location, and leaks files that come with other messages. An invalid message is passed to the
 *   driver as a short one, which the driver rejects correctly.
 *
 * - connect: For a client, on any thread: a server with a full backlog would block it forever. A
 *   connected socket stays non-blocking, which suits later calls. A socket that is not connected
 *   gets its flags back: the EAL's telemetry tests with connect() whether its socket is served,
 *   and then listens on it.
 *
 * - accept: Connections that stay idle, or start a handshake without finishing it, hold a
 *   descriptor each. At most CHANNELS are kept; one that is not connected after HANDSHAKE_S is
 *   closed.
 *
 * The memory of a connected peer remains trusted: the descriptors in its rings hold the locations
 * of frames, which the driver follows. Any user that may connect to the socket can therefore crash
 * the process; the permissions of the socket's folder are the protection. Remove each function that
 * a newer packaged DPDK makes unnecessary.
 */
#include "memif_guard.h"

#include "kvr_hook.h"

#if KVR_HOOK

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <rte_interrupts.h>

#define CHANNELS    32u
#define HANDSHAKE_S 2
#define REGIONS	    256u
#define RINGS	    64u
#define MESSAGE	    128u /* bytes of each message */
#define RING_HEAD   128u /* bytes before the descriptors of a ring */
#define DESCRIPTOR  16u
#define MAX_LOG2    14u
#define MAX_PAGES                                                                                  \
	(UINT64_C(64)                                                                              \
	 << 20) /* limit, as a peer's file may be large and sparse: 2^14 frames each way */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Messages of a client to its server; others are allowed at any time. */
enum {
	MSG_ACK = 1,
	MSG_INIT = 3,
	MSG_ADD_REGION = 4,
	MSG_ADD_RING = 5,
	MSG_CONNECT = 6,
	MSG_DISCONNECT = 8
};

/* A connection that the driver has accepted. Interrupt thread only. */
struct channel {
	int fd; /* 0: free */
	bool named, connected;
	bool held;   /* lcores are kept out of the driver */
	uint32_t id; /* interface id */
	time_t since;
	uint32_t rings[2]; /* to the server, from the server */
	struct {
		uint32_t offset;
		int event;
		uint16_t region;
	} ring[RINGS]; /* rings to the server */
	uint32_t n_regions;
	uint64_t pages; /* bytes populated */
	struct {
		uint64_t bytes;
		int fd;
	} region[REGIONS];
};

/* Functions of the C library, which are cancellation points of other threads. */
static struct {
	int (*accept)(int, struct sockaddr *, socklen_t *);
	int (*close)(int);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(int, const struct msghdr *, int);
	ssize_t (*recvmsg)(int, struct msghdr *, int);
} libc;

__attribute__((constructor)) static void find_libc(void)
{
	*(void **)&libc.accept = dlsym(RTLD_NEXT, "accept");
	*(void **)&libc.connect = dlsym(RTLD_NEXT, "connect");
	*(void **)&libc.close = dlsym(RTLD_NEXT, "close");
	*(void **)&libc.sendmsg = dlsym(RTLD_NEXT, "sendmsg");
	*(void **)&libc.recvmsg = dlsym(RTLD_NEXT, "recvmsg");
}

static struct channel channels[CHANNELS];
static _Atomic(const struct memif_guard *) guard;

void memif_guard_set(const struct memif_guard *g)
{
	atomic_store_explicit(&guard, g,
			      memory_order_release); /* pairs with the load in load_guard() */
}

static const struct memif_guard *load_guard(void)
{
	return atomic_load_explicit(&guard, memory_order_acquire);
}

/* ---- connections ---- */

static struct channel *find_channel(int fd)
{
	for (uint32_t i = 0; fd > 0 && i < CHANNELS; i++)
		if (channels[i].fd == fd)
			return &channels[i];
	return NULL;
}

static time_t monotonic_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* A free slot; else the slot of the oldest connection that is not connected, which is hung up. */
static struct channel *allocate_channel(void)
{
	struct channel *oldest = NULL;
	const time_t now = monotonic_seconds();

	for (uint32_t i = 0; i < CHANNELS; i++) {
		struct channel *channel = &channels[i];

		if (channel->fd > 0 && channel->named && !channel->connected &&
		    now - channel->since > HANDSHAKE_S)
			shutdown(channel->fd, SHUT_RDWR); /* it occupies a device */
	}
	for (uint32_t i = 0; i < CHANNELS; i++) {
		struct channel *channel = &channels[i];

		if (channel->fd <= 0)
			return channel;
		if (!channel->connected && (oldest == NULL || channel->since < oldest->since))
			oldest = channel;
	}
	if (oldest != NULL)
		shutdown(oldest->fd, SHUT_RDWR);
	return oldest;
}

static bool is_memif(int fd)
{
	int type = 0, domain = 0;
	socklen_t len = sizeof(int);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET &&
	       getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct channel *channel;
	int got;

	if (!rte_thread_is_intr() || !is_memif(fd))
		return libc.accept(fd, addr, len);
	got = (int)syscall(SYS_accept4, fd, addr, len, SOCK_CLOEXEC);
	if (got < 0)
		return got;
	channel = find_channel(got);
	if (channel == NULL)
		channel = allocate_channel();
	if (channel == NULL) {
		syscall(SYS_close, got);
		errno = ECONNABORTED;
		return -1;
	}
	memset(channel, 0, sizeof(*channel));
	channel->fd = got;
	channel->since = monotonic_seconds();
	return got;
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	const int flags = is_memif(fd) ? fcntl(fd, F_GETFL) : -1;
	int rc, why;

	if (flags >= 0)
		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	rc = libc.connect != NULL ? libc.connect(fd, addr, len)
				  : (int)syscall(SYS_connect, fd, addr, len);
	if (rc < 0 && flags >= 0) {
		why = errno;
		fcntl(fd, F_SETFL, flags);
		errno = why;
	}
	return rc;
}

/* Path of the socket, "" if it has none, in the memory of @p a. */
static const char *socket_path(const struct channel *channel, struct sockaddr_un *a)
{
	socklen_t len = sizeof(*a) - 1;

	memset(a, 0, sizeof(*a));
	if (getsockname(channel->fd, (struct sockaddr *)a, &len) != 0)
		return "";
	return a->sun_path + (a->sun_path[0] == '\0');
}

/* Report the rings of a connection, or that they are gone. */
static void report_rings(const struct channel *channel, const char *path, bool gone)
{
	const struct memif_guard *g = load_guard();

	for (uint32_t i = 0; g != NULL && g->ring != NULL && i < channel->rings[0] && i < RINGS;
	     i++) {
		const struct memif_guard_ring at = {
			.region = channel->region[channel->ring[i].region].fd,
			.offset = channel->ring[i].offset,
			.event = channel->ring[i].event};

		g->ring(path, channel->id, i, gone ? NULL : &at);
	}
}

/* The driver has connected the peer or has given up: lcores may call it again. */
static void admit_lcores(struct channel *channel)
{
	const struct memif_guard *g = load_guard();
	struct sockaddr_un a;

	if (channel->held && g != NULL && g->connected != NULL)
		g->connected(socket_path(channel, &a), channel->id);
	channel->held = false;
}

int close(int fd)
{
	struct channel *channel = rte_thread_is_intr() ? find_channel(fd) : NULL;
	struct sockaddr_un a;

	if (channel == NULL)
		return libc.close != NULL ? libc.close(fd) : (int)syscall(SYS_close, fd);
	admit_lcores(channel);
	if (channel->connected)
		report_rings(channel, socket_path(channel, &a), true);
	/* The driver closes only the files it has mapped. */
	for (uint32_t i = 0; !channel->connected && i < channel->n_regions; i++)
		syscall(SYS_close, channel->region[i].fd);
	channel->fd = 0;
	return (int)syscall(SYS_close, fd);
}

/* ---- messages ---- */

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct channel *channel = rte_thread_is_intr() ? find_channel(fd) : NULL;
	ssize_t n;

	if (channel == NULL)
		return libc.sendmsg(fd, m, flags);
	admit_lcores(channel);
	n = syscall(SYS_sendmsg, fd, m, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n >= 0)
		return n;
	shutdown(fd, SHUT_RDWR);
	return (ssize_t)m->msg_iov[0].iov_len;
}

/* File that came with the message. Further files are closed, which the driver would not do. */
static int take_files(struct msghdr *m)
{
	int first = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (first < 0)
				first = fd;
			else
				syscall(SYS_close, fd);
		}
	}
	return first;
}

static bool add_region(struct channel *channel, const uint8_t *b, int fd)
{
	struct stat st;
	uint16_t index;
	uint64_t size;

	memcpy(&index, b, sizeof(index));
	memcpy(&size, b + 2, sizeof(size));
	if (index != channel->n_regions || index >= REGIONS || size == 0 || fstat(fd, &st) != 0 ||
	    (uint64_t)st.st_size < size)
		return false;
	channel->region[channel->n_regions].bytes = size;
	channel->region[channel->n_regions++].fd = fd;
	return true;
}

static uint32_t max_queues(void)
{
	const struct memif_guard *g = load_guard();

	return g != NULL && g->queues > 1 ? g->queues : 1;
}

static bool add_ring(struct channel *channel, const uint8_t *b, int fd)
{
	uint16_t flags, index, region;
	uint32_t offset;
	const uint8_t log2 = b[10];

	memcpy(&flags, b, sizeof(flags));
	memcpy(&index, b + 2, sizeof(index));
	memcpy(&region, b + 4, sizeof(region));
	memcpy(&offset, b + 6, sizeof(offset));
	if (index != channel->rings[!(flags & 1)] || index >= max_queues() || log2 > MAX_LOG2 ||
	    region >= channel->n_regions ||
	    offset + RING_HEAD + ((uint64_t)DESCRIPTOR << log2) > channel->region[region].bytes)
		return false;
	if ((flags & 1) != 0 && index < RINGS) {
		channel->ring[index].region = region;
		channel->ring[index].offset = offset;
		channel->ring[index].event = fd;
	}
	channel->rings[!(flags & 1)]++;
	return true;
}

/*
 * A queue without a ring would poll the ring of another queue: lcores must know the number of rings
 * before the driver reports the link up.
 */
static bool prepare_connect(struct channel *channel)
{
	const struct memif_guard *g = load_guard();
	struct sockaddr_un a;
	char line[160];

	if (channel->rings[0] >= 1 && channel->rings[1] >= 1) {
		const char *path = socket_path(channel, &a);

		report_rings(channel, path, false);
		if (g != NULL && g->rings != NULL) {
			g->rings(path, channel->id, channel->rings[0], channel->rings[1]);
			channel->held = true;
			g->wait(g->arg);
		}
		channel->connected = true;
		return true;
	}
	snprintf(line, sizeof(line),
		 "memif: peer rejected: it offers %u and %u rings, needed: at least one each way",
		 channel->rings[0], channel->rings[1]);
	if (g != NULL && g->report != NULL)
		g->report(line);
	return false;
}

/* True if the driver may see this message. It carries a file if and only if one is expected. */
static bool check_message(struct channel *channel, const uint8_t *msg, int fd)
{
	const uint8_t *body = msg + 2;
	uint16_t type;

	memcpy(&type, msg, sizeof(type));
	if ((fd >= 0) != (type == MSG_ADD_REGION || type == MSG_ADD_RING))
		return false;
	switch (type) {
	case MSG_ACK:
	case MSG_DISCONNECT:
		return channel->named;
	case MSG_INIT:
		if (channel->named)
			return false;
		channel->named = true;
		memcpy(&channel->id, body + 2,
		       sizeof(channel->id)); /* after the protocol version */
		return true;
	case MSG_ADD_REGION:
		return channel->named && !channel->connected && add_region(channel, body, fd);
	case MSG_ADD_RING:
		return channel->named && !channel->connected && add_ring(channel, body, fd);
	case MSG_CONNECT:
		return channel->named && !channel->connected && prepare_connect(channel);
	default:
		return false;
	}
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	struct channel *channel = rte_thread_is_intr() ? find_channel(fd) : NULL;
	ssize_t n;
	int file;

	if (channel == NULL)
		return libc.recvmsg(fd, m, flags);
	n = syscall(SYS_recvmsg, fd, m, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return n;
	file = take_files(m);
	if (n == 0 ||
	    (n == (ssize_t)MESSAGE && check_message(channel, m->msg_iov[0].iov_base, file)))
		return n;
	if (file >= 0)
		syscall(SYS_close, file);
	m->msg_controllen = 0;
	return 1; /* rejected by the driver as "invalid message size" */
}

/* ---- memory ---- */

/* The connection that owns this file; NULL: memory of this process. */
static struct channel *find_channel_of_file(int fd)
{
	for (uint32_t i = 0; i < CHANNELS; i++)
		for (uint32_t k = 0; channels[i].fd > 0 && k < channels[i].n_regions; k++)
			if (channels[i].region[k].fd == fd)
				return &channels[i];
	return NULL;
}

static void populate_pages(uint8_t *p, size_t len, int fd)
{
	struct channel *channel = find_channel_of_file(fd);

	if (channel != NULL && len > MAX_PAGES - channel->pages)
		len = MAX_PAGES - channel->pages;
	if (channel != NULL)
		channel->pages += len;
	/* Kernels before 5.14 do not know the advice: pages then fault one by one. */
	if (len > 0)
		(void)madvise(p, len, MADV_POPULATE_WRITE);
}

/* With 64-bit file offsets, as DPDK is built, this is mmap64(). */
void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *p = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);

	if (p != MAP_FAILED && fd >= 0 && (flags & MAP_SHARED) != 0 && rte_thread_is_intr() &&
	    load_guard() != NULL)
		populate_pages(p, len, fd);
	return p;
}

int munmap(void *addr, size_t len)
{
	const struct memif_guard *g = load_guard();

	if (g != NULL && rte_thread_is_intr())
		g->wait(g->arg);
	return (int)syscall(SYS_munmap, addr, len);
}

int memif_guard_check(char *err, size_t errlen)
{
	const struct {
		const char *name;
		const void *ours;
	} hooks[] = {{"accept", accept},  {"close", close},   {"connect", connect},
		     {"mmap64", mmap},	  {"munmap", munmap}, {"recvmsg", recvmsg},
		     {"sendmsg", sendmsg}};

	for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
		if (!kvr_hook_in_effect(hooks[i].name, hooks[i].ours)) {
			snprintf(
				err, errlen,
				"net_memif does not call %s() of this program, which protects it from its peers: the symbol is not exported; build with default visibility and the link arguments of app/memif/meson.build",
				hooks[i].name);
			return -ENOTSUP;
		}
	return 0;
}

#else /* another DPDK */

void memif_guard_set(const struct memif_guard *g)
{
	(void)g;
}

int memif_guard_check(char *err, size_t errlen)
{
	(void)err;
	(void)errlen;
	return 0;
}

#endif
