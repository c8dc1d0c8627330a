/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices that wake a sleeping lcore. A struct kvr_port_wait is published for a queue by control or
 * the interrupt thread, read by the queue's lcore, and freed when that lcore has ended its turn.
 *
 *   memif server   net_memif asks its peers for no interrupts. The ring's head is mapped here a
 *                  second time, and the flag that asks for none is taken away while the lcore
 *                  sleeps: its peer then writes to the ring's eventfd.
 *   af_packet, af_xdp   the socket is readable when its ring has a frame.
 *   others         rx interrupts of the driver, where it has them: the file it gives for a queue is
 *                  readable after one, or, where none can be asked for (net_tap), while there are
 *                  frames.
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

#include <rte_ethdev.h>

/* Of a memif ring: flags and head in its first cache line, tail in its second. */
#define RING_BYTES 128u
#define RING_FLAGS 4u
#define RING_HEAD  6u
#define RING_TAIL  64u
#define MASK_INT   1u	 /* no interrupts wanted */
#define MOST_FILES 65536 /* looked at */

struct kvr_port_wait {
	int fd;
	bool asks; /* rx interrupts must be asked for each time */
	bool xdp;  /* in `sockets` */
	struct kvr_port_wait *next;
	uint8_t *map; /* pages with the ring's head; NULL: no ring */
	size_t len;
	uint8_t *ring; /* in them */
};

/* Of AF_XDP, which do not tell their interface: those that have a queue. Control only. */
static struct kvr_port_wait *sockets;

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
		close(w->fd); /* our copy; another file is the driver's */
	}
	if (w->xdp)
		for (struct kvr_port_wait **at = &sockets; *at != NULL; at = &(*at)->next)
			if (*at == w) {
				*at = w->next;
				break;
			}
	free(w);
}

/* ---- the lcore ---- */

/* @return 1: there are some; negative: the driver cannot say. */
static int device_has_frames(uint16_t port, uint16_t queue)
{
	int rc = rte_eth_rx_queue_count(port, queue);

	if (rc >= 0)
		return rc > 0;
	rc = rte_eth_rx_descriptor_status(port, queue, 0);
	return rc < 0 ? rc : rc == RTE_ETH_RX_DESC_DONE;
}

/* Ask first, look then: what comes after the look finds the interrupt asked for. */
static int ask_for_interrupt(struct kvr_port_queue *q)
{
	const uint16_t port = q->port->ethdev;
	int rc;

	if (rte_eth_dev_rx_intr_enable(port, (uint16_t)q->queue) != 0)
		return -ENOTSUP;
	rc = device_has_frames(port, (uint16_t)q->queue);
	if (rc == 0)
		return 0;
	kvr_port_wait_disarm(q);
	return rc > 0 ? -EAGAIN : -ENOTSUP;
}

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
	if (w->asks) {
		const int rc = ask_for_interrupt(q);

		if (rc < 0)
			return rc;
	}
	*fd = w->fd;
	return 0;
}

void kvr_port_wait_disarm(struct kvr_port_queue *q)
{
	struct kvr_port_wait *w = atomic_load_explicit(&q->wait, memory_order_acquire);
	uint64_t count;

	if (w == NULL || (w->ring == NULL && !w->asks))
		return;
	if (w->asks)
		(void)rte_eth_dev_rx_intr_disable(q->port->ethdev, (uint16_t)q->queue);
	else
		atomic_store_explicit(word(w, RING_FLAGS), MASK_INT, memory_order_relaxed);
	(void)!read(w->fd, &count, sizeof(count)); /* does not block: made so before */
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

/* Control: @fd wakes the lcore of @queue. */
static struct kvr_port_wait *wait_on(struct kvr_port *p, uint32_t queue, int fd)
{
	struct kvr_port_wait *w = calloc(1, sizeof(*w));

	if (w != NULL)
		w->fd = fd;
	wait_free(replace(p, queue, w));
	return w;
}

static bool is_packet_socket(int fd, unsigned int ifindex)
{
	struct sockaddr_ll a = {0};
	socklen_t len = sizeof(a);

	return getsockname(fd, (struct sockaddr *)&a, &len) == 0 && a.sll_family == AF_PACKET &&
	       (unsigned int)a.sll_ifindex == ifindex;
}

/* One that no port has: ports are started one after the other. */
static bool is_new_xdp_socket(int fd)
{
	const struct kvr_port_wait *w = sockets;
	socklen_t len = sizeof(int);
	int domain = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) != 0 || domain != AF_XDP)
		return false;
	while (w != NULL && w->fd != fd)
		w = w->next;
	return w == NULL;
}

/* Sockets of this process that are the port's, in the order they were opened. */
static void find_sockets(struct kvr_port *p, bool xdp)
{
	const long open_max = sysconf(_SC_OPEN_MAX);
	const int most = open_max > 0 && open_max < MOST_FILES ? (int)open_max : MOST_FILES;
	uint32_t queue = 0;

	for (int fd = 0; fd < most && queue < p->hw; fd++) {
		struct kvr_port_wait *w;

		if (!(xdp ? is_new_xdp_socket(fd) : is_packet_socket(fd, p->dev.if_index)))
			continue;
		w = wait_on(p, queue++, fd);
		if (w == NULL || !xdp)
			continue;
		w->xdp = true;
		w->next = sockets;
		sockets = w;
	}
}

/* Asked for in configure_dev(). */
static void find_interrupts(struct kvr_port *p)
{
	for (uint32_t queue = 0; p->interrupts && queue < p->hw; queue++) {
		const int fd = rte_eth_dev_rx_intr_ctl_q_get_fd(p->ethdev, (uint16_t)queue);
		const int rc =
			fd < 0 ? -ENOTSUP : rte_eth_dev_rx_intr_enable(p->ethdev, (uint16_t)queue);
		struct kvr_port_wait *w =
			rc == 0 || (fd >= 0 && rc == -ENOTSUP) ? wait_on(p, queue, fd) : NULL;

		if (rc == 0)
			rte_eth_dev_rx_intr_disable(p->ethdev, (uint16_t)queue);
		if (w == NULL || rc != 0)
			continue;
		w->asks = true;
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	}
}

void kvr_port_wait_start(struct kvr_port *p)
{
	const char *driver = p->dev.driver_name;

	if (strcmp(driver, "net_af_packet") == 0 && p->dev.if_index != 0)
		find_sockets(p, false);
	else if (strcmp(driver, "net_af_xdp") == 0)
		find_sockets(p, true);
	else
		find_interrupts(p);
}

void kvr_port__wait_stop(struct kvr_port *p)
{
	for (uint32_t i = 0; p->queues != NULL && i < p->lcores; i++)
		wait_free(replace(p, i, NULL));
}
