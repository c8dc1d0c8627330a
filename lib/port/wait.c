/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices that wake a sleeping lcore. A struct kvr_port_wait is published for a queue by control or
 * the interrupt thread, read by the queue's lcore, and freed when that lcore has ended its turn.
 *
 *   memif server   net_memif asks its peers for no interrupts. The ring's head is mapped here a
 *                  second time, and the flag that asks for none is taken away while the lcore
 *                  sleeps: its peer then writes to the ring's eventfd.
 *   af_packet      the socket is readable when its ring has a frame.
 */
#include "port_pvt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_packet.h>

/* Of a memif ring: flags and head in its first cache line, tail in its second. */
#define RING_BYTES 128u
#define RING_FLAGS 4u
#define RING_HEAD  6u
#define RING_TAIL  64u
#define MASK_INT   1u	 /* no interrupts wanted */
#define MOST_FILES 65536 /* looked at */

struct kvr_port_wait {
	int fd;
	uint8_t *map; /* pages with the ring's head; NULL: a socket */
	size_t len;
	uint8_t *ring; /* in them */
};

static _Atomic uint16_t *word(const struct kvr_port_wait *w, size_t at)
{
	return (_Atomic uint16_t *)(void *)(w->ring + at);
}

static void wait_free(struct kvr_port_wait *w)
{
	if (w == NULL)
		return;
	if (w->map != NULL) {
		munmap(w->map, w->len);
		close(w->fd); /* our copy; a socket is the driver's */
	}
	free(w);
}

/* ---- the lcore ---- */

int kvr_port_wait_arm(struct kvr_port_queue *q, int *fd)
{
	/* Pairs with the release exchange in replace(). */
	struct kvr_port_wait *w = atomic_load_explicit(&q->wait, memory_order_acquire);

	*fd = -1;
	if (q->queue >= q->port->hw || !kvr_port__rx_on(q))
		return 0; /* other lcores give it what it gets */
	if (w == NULL)
		return q->port->wakes ? 0 : -ENOTSUP; /* no peer is connected */
	if (w->ring != NULL) {
		atomic_store_explicit(word(w, RING_FLAGS), 0, memory_order_relaxed);
		/* Ask first, look then: its peer writes head first and looks at the flag then. */
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load_explicit(word(w, RING_HEAD), memory_order_relaxed) !=
		    atomic_load_explicit(word(w, RING_TAIL), memory_order_relaxed)) {
			kvr_port_wait_disarm(q);
			return -EAGAIN;
		}
	}
	*fd = w->fd;
	return 0;
}

void kvr_port_wait_disarm(struct kvr_port_queue *q)
{
	struct kvr_port_wait *w = atomic_load_explicit(&q->wait, memory_order_acquire);
	uint64_t count;

	if (w == NULL || w->ring == NULL)
		return;
	atomic_store_explicit(word(w, RING_FLAGS), MASK_INT, memory_order_relaxed);
	(void)!read(w->fd, &count, sizeof(count)); /* does not block: made so in ring_wait() */
}

/* ---- control and the interrupt thread ---- */

/* @return the former one, for who has waited for the lcore. */
static struct kvr_port_wait *replace(struct kvr_port *p, uint32_t queue, struct kvr_port_wait *w)
{
	/* Pairs with the loads above. */
	return atomic_exchange_explicit(&p->queues[queue].wait, w, memory_order_acq_rel);
}

static struct kvr_port_wait *ring_wait(const struct kvr_port_ring_at *at)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = at->offset % page;
	struct kvr_port_wait *w = calloc(1, sizeof(*w));
	void *map;

	if (w == NULL)
		return NULL;
	w->fd = dup(at->event);
	w->len = skip + RING_BYTES;
	map = mmap(NULL, w->len, PROT_READ | PROT_WRITE, MAP_SHARED, at->region,
		   (off_t)(at->offset - skip));
	if (w->fd < 0 || map == MAP_FAILED || at->offset % sizeof(uint64_t) != 0) {
		if (map != MAP_FAILED)
			munmap(map, w->len);
		if (w->fd >= 0)
			close(w->fd);
		free(w);
		return NULL;
	}
	fcntl(w->fd, F_SETFL, fcntl(w->fd, F_GETFL) | O_NONBLOCK);
	w->map = map;
	w->ring = w->map + skip;
	return w;
}

void kvr_port__wait_ring(struct kvr_port *p, uint32_t queue, const struct kvr_port_ring_at *at,
			 void (*pass)(void *arg), void *arg)
{
	struct kvr_port_wait *old;

	if (queue >= p->hw)
		return;
	old = replace(p, queue, at != NULL ? ring_wait(at) : NULL);
	if (old == NULL)
		return;
	pass(arg);
	wait_free(old);
}

/* Packet sockets of this process that are bound to @p ifindex, in the order they were opened. */
static void find_sockets(struct kvr_port *p, unsigned int ifindex)
{
	const long open_max = sysconf(_SC_OPEN_MAX);
	const int most = open_max > 0 && open_max < MOST_FILES ? (int)open_max : MOST_FILES;
	uint32_t queue = 0;

	for (int fd = 0; fd < most && queue < p->hw; fd++) {
		struct sockaddr_ll a = {0};
		socklen_t len = sizeof(a);
		struct kvr_port_wait *w;

		if (getsockname(fd, (struct sockaddr *)&a, &len) != 0 ||
		    a.sll_family != AF_PACKET || (unsigned int)a.sll_ifindex != ifindex)
			continue;
		w = calloc(1, sizeof(*w));
		if (w != NULL)
			w->fd = fd;
		wait_free(replace(p, queue++, w));
	}
}

void kvr_port_wait_start(struct kvr_port *p)
{
	if (strcmp(p->dev.driver_name, "net_af_packet") == 0 && p->dev.if_index != 0)
		find_sockets(p, p->dev.if_index);
}

void kvr_port__wait_stop(struct kvr_port *p)
{
	for (uint32_t i = 0; p->queues != NULL && i < p->lcores; i++)
		wait_free(replace(p, i, NULL));
}
