/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_memif of DPDK 22.11 believes its peers and its own luck. Everything it does with a peer
 * happens on the EAL's interrupt thread, through a handful of calls to the C library; this file
 * stands in for these calls there (anywhere else, but for connect, they are the system calls and
 * nothing more).
 *
 *   munmap   The rings of a peer that has left are unmapped while a packet lcore may be inside its
 *            receive or transmit call, which then faults. The driver clears its "connected" flag
 *            first, so a call that starts afterwards touches nothing: all that is missing is a
 *            grace period between the flag and the unmapping.
 *   mmap     The memory of a peer that connects has no pages here yet, and a packet lcore would
 * take a page fault for each the first time round its rings: 2,200 of them. They are taken here,
 *            where nobody waits, for as much of it as rings of frames can need.
 *   sendmsg  When the greeting of a new connection cannot be sent, because its peer has closed it
 *            at once, the driver closes the socket but leaves it among the EAL's interrupt sources.
 *            The EAL then polls a file that is not open, which it takes for a reason to panic. A
 *            send that fails is therefore said to have been done, and the connection shut down:
 *            the hang-up is an event, whose handler removes source and socket as it should. Nor
 *            does it block: a peer that does not read would stop the thread for all.
 *            The driver's burst calls look where a ring is before they look at "connected": one
 *            that began before the rings were mapped, and goes on after, would use an address that
 *            is none. So nobody is inside while it connects, until it has sent what it says then.
 *   recvmsg  What the driver does not check: order of the messages, number of rings, where they
 *            lie. A message with a file that is not wanted would leak it. A bad message is given to
 *            the driver as a short one, which it refuses in the right way.
 *   connect  Of a client, on any thread: a server with a full backlog would hold it for ever. A
 *            socket that is connected does not block from here on, which later calls on it profit
 *            from, too. One that is not is as it was: the EAL's telemetry tries in this way whether
 *            anybody serves its socket, and goes on to listen on it.
 *   accept   Connections that say nothing, or begin and do not end, hold a descriptor each. There
 *            may be CHANNELS of them, and one that is not connected after HANDSHAKE_S makes room.
 *
 * What stays is trust in the memory of a connected peer: the descriptors in its rings say where
 * frames lie, and the driver follows them. Whoever may connect to the socket can therefore end the
 * process; the socket's folder says who that is. Remove what the packaged DPDK has repaired.
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
#define MESSAGE	    128u /* bytes of every message */
#define RING_HEAD   128u /* bytes before a ring's descriptors */
#define DESCRIPTOR  16u
#define MAX_LOG2    14u
#define PAGES_MOST                                                                                 \
	(UINT64_C(64) << 20) /* a peer's file may be long, and empty: 2^14 frames each way */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Messages of a client to its server; the rest may come at any time, or never. */
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
	bool held;   /* who polls keeps out of the driver */
	uint32_t id; /* of the interface */
	time_t since;
	uint32_t rings[2]; /* to the server, from it */
	struct {
		uint32_t offset;
		int event;
		uint16_t region;
	} ring[RINGS]; /* to the server */
	uint32_t n_regions;
	uint64_t pages; /* bytes that have got them */
	struct {
		uint64_t bytes;
		int fd;
	} region[REGIONS];
};

/* The C library's own: other threads are cancelled inside them. */
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

void memif_guard(const struct memif_guard *g)
{
	atomic_store_explicit(&guard, g, memory_order_release); /* pairs with the load below */
}

static const struct memif_guard *guarded(void)
{
	return atomic_load_explicit(&guard, memory_order_acquire);
}

/* ---- connections ---- */

static struct channel *channel_of(int fd)
{
	for (uint32_t i = 0; fd > 0 && i < CHANNELS; i++)
		if (channels[i].fd == fd)
			return &channels[i];
	return NULL;
}

static time_t seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* A free place; else that of the oldest connection that is none yet, which is hung up. */
static struct channel *channel_new(void)
{
	struct channel *oldest = NULL;
	const time_t now = seconds();

	for (uint32_t i = 0; i < CHANNELS; i++) {
		struct channel *c = &channels[i];

		if (c->fd > 0 && c->named && !c->connected && now - c->since > HANDSHAKE_S)
			shutdown(c->fd, SHUT_RDWR); /* it holds a device */
	}
	for (uint32_t i = 0; i < CHANNELS; i++) {
		struct channel *c = &channels[i];

		if (c->fd <= 0)
			return c;
		if (!c->connected && (oldest == NULL || c->since < oldest->since))
			oldest = c;
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
	struct channel *c;
	int got;

	if (!rte_thread_is_intr() || !is_memif(fd))
		return libc.accept(fd, addr, len);
	got = (int)syscall(SYS_accept4, fd, addr, len, SOCK_CLOEXEC);
	if (got < 0)
		return got;
	c = channel_of(got);
	if (c == NULL)
		c = channel_new();
	if (c == NULL) {
		syscall(SYS_close, got);
		errno = ECONNABORTED;
		return -1;
	}
	memset(c, 0, sizeof(*c));
	c->fd = got;
	c->since = seconds();
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

/* The socket's path, "" for one without; @p a is its memory. */
static const char *socket_of(const struct channel *c, struct sockaddr_un *a)
{
	socklen_t len = sizeof(*a) - 1;

	memset(a, 0, sizeof(*a));
	if (getsockname(c->fd, (struct sockaddr *)a, &len) != 0)
		return "";
	return a->sun_path + (a->sun_path[0] == '\0');
}

/* Tell of its rings to the server, or that they have gone. */
static void tell_rings(const struct channel *c, const char *path, bool gone)
{
	const struct memif_guard *g = guarded();

	for (uint32_t i = 0; g != NULL && g->ring != NULL && i < c->rings[0] && i < RINGS; i++) {
		const struct memif_guard_ring at = {.region = c->region[c->ring[i].region].fd,
						    .offset = c->ring[i].offset,
						    .event = c->ring[i].event};

		g->ring(path, c->id, i, gone ? NULL : &at);
	}
}

/* The driver has connected it, or has given up: who polls may look. */
static void let_in(struct channel *c)
{
	const struct memif_guard *g = guarded();
	struct sockaddr_un a;

	if (c->held && g != NULL && g->connected != NULL)
		g->connected(socket_of(c, &a), c->id);
	c->held = false;
}

int close(int fd)
{
	struct channel *c = rte_thread_is_intr() ? channel_of(fd) : NULL;
	struct sockaddr_un a;

	if (c == NULL)
		return libc.close != NULL ? libc.close(fd) : (int)syscall(SYS_close, fd);
	let_in(c);
	if (c->connected)
		tell_rings(c, socket_of(c, &a), true);
	/* The driver closes what it has mapped. */
	for (uint32_t i = 0; !c->connected && i < c->n_regions; i++)
		syscall(SYS_close, c->region[i].fd);
	c->fd = 0;
	return (int)syscall(SYS_close, fd);
}

/* ---- messages ---- */

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct channel *c = rte_thread_is_intr() ? channel_of(fd) : NULL;
	ssize_t n;

	if (c == NULL)
		return libc.sendmsg(fd, m, flags);
	let_in(c);
	n = syscall(SYS_sendmsg, fd, m, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n >= 0)
		return n;
	shutdown(fd, SHUT_RDWR);
	return (ssize_t)m->msg_iov[0].iov_len;
}

/* Files that came with the message; all but the first are closed, which the driver would not do. */
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

static bool add_region(struct channel *c, const uint8_t *b, int fd)
{
	struct stat st;
	uint16_t index;
	uint64_t size;

	memcpy(&index, b, sizeof(index));
	memcpy(&size, b + 2, sizeof(size));
	if (index != c->n_regions || index >= REGIONS || size == 0 || fstat(fd, &st) != 0 ||
	    (uint64_t)st.st_size < size)
		return false;
	c->region[c->n_regions].bytes = size;
	c->region[c->n_regions++].fd = fd;
	return true;
}

static uint32_t queues(void)
{
	const struct memif_guard *g = guarded();

	return g != NULL && g->queues > 1 ? g->queues : 1;
}

static bool add_ring(struct channel *c, const uint8_t *b, int fd)
{
	uint16_t flags, index, region;
	uint32_t offset;
	const uint8_t log2 = b[10];

	memcpy(&flags, b, sizeof(flags));
	memcpy(&index, b + 2, sizeof(index));
	memcpy(&region, b + 4, sizeof(region));
	memcpy(&offset, b + 6, sizeof(offset));
	if (index != c->rings[!(flags & 1)] || index >= queues() || log2 > MAX_LOG2 ||
	    region >= c->n_regions ||
	    offset + RING_HEAD + ((uint64_t)DESCRIPTOR << log2) > c->region[region].bytes)
		return false;
	if ((flags & 1) != 0 && index < RINGS) {
		c->ring[index].region = region;
		c->ring[index].offset = offset;
		c->ring[index].event = fd;
	}
	c->rings[!(flags & 1)]++;
	return true;
}

/*
 * A queue without a ring would poll that of another queue: who polls must know how many there are
 * before the driver says that it is connected.
 */
static bool connect_ready(struct channel *c)
{
	const struct memif_guard *g = guarded();
	struct sockaddr_un a;
	char line[160];

	if (c->rings[0] >= 1 && c->rings[1] >= 1) {
		const char *path = socket_of(c, &a);

		tell_rings(c, path, false);
		if (g != NULL && g->rings != NULL) {
			g->rings(path, c->id, c->rings[0], c->rings[1]);
			c->held = true;
			g->wait(g->arg);
		}
		c->connected = true;
		return true;
	}
	snprintf(line, sizeof(line),
		 "memif: peer refused: it brings %u and %u rings, needed: at least one each way",
		 c->rings[0], c->rings[1]);
	if (g != NULL && g->say != NULL)
		g->say(line);
	return false;
}

/* May the driver see this message? It has no file but where one is wanted. */
static bool sound(struct channel *c, const uint8_t *msg, int fd)
{
	const uint8_t *body = msg + 2;
	uint16_t type;

	memcpy(&type, msg, sizeof(type));
	if ((fd >= 0) != (type == MSG_ADD_REGION || type == MSG_ADD_RING))
		return false;
	switch (type) {
	case MSG_ACK:
	case MSG_DISCONNECT:
		return c->named;
	case MSG_INIT:
		if (c->named)
			return false;
		c->named = true;
		memcpy(&c->id, body + 2, sizeof(c->id)); /* after the version */
		return true;
	case MSG_ADD_REGION:
		return c->named && !c->connected && add_region(c, body, fd);
	case MSG_ADD_RING:
		return c->named && !c->connected && add_ring(c, body, fd);
	case MSG_CONNECT:
		return c->named && !c->connected && connect_ready(c);
	default:
		return false;
	}
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	struct channel *c = rte_thread_is_intr() ? channel_of(fd) : NULL;
	ssize_t n;
	int file;

	if (c == NULL)
		return libc.recvmsg(fd, m, flags);
	n = syscall(SYS_recvmsg, fd, m, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return n;
	file = take_files(m);
	if (n == 0 || (n == (ssize_t)MESSAGE && sound(c, m->msg_iov[0].iov_base, file)))
		return n;
	if (file >= 0)
		syscall(SYS_close, file);
	m->msg_controllen = 0;
	return 1; /* "invalid message size" */
}

/* ---- memory ---- */

/* The connection whose file this is; NULL: memory of this process. */
static struct channel *channel_of_file(int fd)
{
	for (uint32_t i = 0; i < CHANNELS; i++)
		for (uint32_t k = 0; channels[i].fd > 0 && k < channels[i].n_regions; k++)
			if (channels[i].region[k].fd == fd)
				return &channels[i];
	return NULL;
}

static void give_pages(uint8_t *p, size_t len, int fd)
{
	struct channel *c = channel_of_file(fd);

	if (c != NULL && len > PAGES_MOST - c->pages)
		len = PAGES_MOST - c->pages;
	if (c != NULL)
		c->pages += len;
	/* Kernels before 5.14 do not know the advice: then they come one by one. */
	if (len > 0)
		(void)madvise(p, len, MADV_POPULATE_WRITE);
}

/* With files of more than 2 GiB, as DPDK is built, this is mmap64(). */
void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *p = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);

	if (p != MAP_FAILED && fd >= 0 && (flags & MAP_SHARED) != 0 && rte_thread_is_intr() &&
	    guarded() != NULL)
		give_pages(p, len, fd);
	return p;
}

int munmap(void *addr, size_t len)
{
	const struct memif_guard *g = guarded();

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
			snprintf(err, errlen,
				 "net_memif does not call %s() of this program, which protects it "
				 "from its peers: the symbol is not exported; build with default "
				 "visibility and the link arguments of app/memif/meson.build",
				 hooks[i].name);
			return -ENOTSUP;
		}
	return 0;
}

#else /* another DPDK */

void memif_guard(const struct memif_guard *g)
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
