/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices that wake a sleeping lcore. A struct kvr_port_wait is published for a queue by the
 * control or the interrupt thread, read by the queue's lcore, and freed after that lcore has
 * finished its turn.
 *
 * - memif server: net_memif asks its peers for no interrupts. The head of the ring is mapped a
 *   second time here, and the flag against interrupts is cleared while the lcore sleeps, so that
 *   the peer writes to the ring's eventfd.
 * - af_packet, af_xdp: the socket is readable if its ring has a frame.
 * - others: rx interrupts of the driver, if supported. The descriptor of a queue is readable after
 *   an interrupt. Where none can be requested (net_tap), the descriptor is readable while there are
 *   frames.
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

/* Layout of a memif ring: flags and head in the first cache line, tail in the second. */
#define RING_BYTES 128u
#define RING_FLAGS 4u
#define RING_HEAD  6u
#define RING_TAIL  64u
#define MASK_INT   1u	 /* the peer sends no interrupts */
#define MOST_FILES 65536 /* limit of the scan */

struct kvr_port_wait {
	int fd;
	bool asks; /* rx interrupts must be enabled before each sleep */
	bool xdp;  /* in the list `sockets` */
	struct kvr_port_wait *next;
	uint8_t *map; /* pages with the head of the ring; NULL = no ring */
	size_t len;
	uint8_t *ring; /* within map */
};

/* AF_XDP sockets in use: they do not reveal their interface. Control thread only. */
static struct kvr_port_wait *sockets;

static _Atomic uint16_t *ring_word(const struct kvr_port_wait *wait, size_t at)
{
	return (_Atomic uint16_t *)(void *)(wait->ring + at);
}

static void wait_free(struct kvr_port_wait *wait)
{
	if (wait == NULL)
		return;
	if (wait->map != NULL) {
		munmap(wait->map, wait->len);
		close(wait->fd); /* our duplicate; other descriptors belong to the driver */
	}
	if (wait->xdp)
		for (struct kvr_port_wait **at = &sockets; *at != NULL; at = &(*at)->next)
			if (*at == wait) {
				*at = wait->next;
				break;
			}
	free(wait);
}

/* ---- the lcore ---- */

/* @return 1: frames are waiting; negative: the driver cannot tell. */
static int device_has_frames(uint16_t port, uint16_t queue)
{
	int rc = rte_eth_rx_queue_count(port, queue);

	if (rc >= 0)
		return rc > 0;
	rc = rte_eth_rx_descriptor_status(port, queue, 0);
	return rc < 0 ? rc : rc == RTE_ETH_RX_DESC_DONE;
}

/* Enable the interrupt first, then check for frames: a later frame raises the interrupt. */
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
	/* Pairs with the release exchange in replace_wait(). */
	struct kvr_port_wait *wait = atomic_load_explicit(&q->wait, memory_order_acquire);

	*fd = -1;
	if (q->queue >= q->port->hw || !kvr_port__rx_on(q))
		return 0; /* other lcores pass it its datagrams */
	if (wait == NULL)
		return q->port->wakes ? 0 : -ENOTSUP; /* no peer is connected */
	if (wait->ring != NULL) {
		atomic_store_explicit(ring_word(wait, RING_FLAGS), 0, memory_order_relaxed);
		/*
		 * Clear the flag first, then check for frames: the peer writes the head first and
		 * reads the flag then.
		 */
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load_explicit(ring_word(wait, RING_HEAD), memory_order_relaxed) !=
		    atomic_load_explicit(ring_word(wait, RING_TAIL), memory_order_relaxed)) {
			kvr_port_wait_disarm(q);
			return -EAGAIN;
		}
	}
	if (wait->asks) {
		const int rc = ask_for_interrupt(q);

		if (rc < 0)
			return rc;
	}
	*fd = wait->fd;
	return 0;
}

void kvr_port_wait_disarm(struct kvr_port_queue *q)
{
	struct kvr_port_wait *wait = atomic_load_explicit(&q->wait, memory_order_acquire);
	uint64_t count;

	if (wait == NULL || (wait->ring == NULL && !wait->asks))
		return;
	if (wait->asks)
		(void)rte_eth_dev_rx_intr_disable(q->port->ethdev, (uint16_t)q->queue);
	else
		atomic_store_explicit(ring_word(wait, RING_FLAGS), MASK_INT, memory_order_relaxed);
	(void)!read(wait->fd, &count,
		    sizeof(count)); /* does not block: the descriptor is non-blocking */
}

/* ---- control and the interrupt thread ---- */

/* @return the former wake-up, to be freed after waiting for the lcore. */
static struct kvr_port_wait *replace_wait(struct kvr_port *port, uint32_t queue,
					  struct kvr_port_wait *wait)
{
	/* Pairs with the loads in kvr_port_wait_arm() and kvr_port_wait_disarm(). */
	return atomic_exchange_explicit(&port->queues[queue].wait, wait, memory_order_acq_rel);
}

static struct kvr_port_wait *ring_wait(const struct kvr_port_ring_at *at)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = at->offset % page;
	struct kvr_port_wait *wait = calloc(1, sizeof(*wait));
	void *map;

	if (wait == NULL)
		return NULL;
	wait->fd = dup(at->event);
	wait->len = skip + RING_BYTES;
	map = mmap(NULL, wait->len, PROT_READ | PROT_WRITE, MAP_SHARED, at->region,
		   (off_t)(at->offset - skip));
	if (wait->fd < 0 || map == MAP_FAILED || at->offset % sizeof(uint64_t) != 0) {
		if (map != MAP_FAILED)
			munmap(map, wait->len);
		if (wait->fd >= 0)
			close(wait->fd);
		free(wait);
		return NULL;
	}
	fcntl(wait->fd, F_SETFL, fcntl(wait->fd, F_GETFL) | O_NONBLOCK);
	wait->map = map;
	wait->ring = wait->map + skip;
	return wait;
}

void kvr_port__wait_ring(struct kvr_port *port, uint32_t queue, const struct kvr_port_ring_at *at,
			 void (*pass)(void *arg), void *arg)
{
	struct kvr_port_wait *old;

	if (queue >= port->hw)
		return;
	old = replace_wait(port, queue, at != NULL ? ring_wait(at) : NULL);
	if (old == NULL)
		return;
	pass(arg);
	wait_free(old);
}

/* Control thread: @p fd wakes the lcore of @p queue. */
static struct kvr_port_wait *wait_on(struct kvr_port *port, uint32_t queue, int fd)
{
	struct kvr_port_wait *wait = calloc(1, sizeof(*wait));

	if (wait != NULL)
		wait->fd = fd;
	wait_free(replace_wait(port, queue, wait));
	return wait;
}

static bool is_packet_socket(int fd, unsigned int ifindex)
{
	struct sockaddr_ll a = {0};
	socklen_t len = sizeof(a);

	return getsockname(fd, (struct sockaddr *)&a, &len) == 0 && a.sll_family == AF_PACKET &&
	       (unsigned int)a.sll_ifindex == ifindex;
}

/* True for a socket that no port uses yet: ports are started one after the other. */
static bool is_new_xdp_socket(int fd)
{
	const struct kvr_port_wait *wait = sockets;
	socklen_t len = sizeof(int);
	int domain = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) != 0 || domain != AF_XDP)
		return false;
	while (wait != NULL && wait->fd != fd)
		wait = wait->next;
	return wait == NULL;
}

/* Find the sockets of this process that belong to the port, in the order they were opened. */
static void find_sockets(struct kvr_port *port, bool xdp)
{
	const long open_max = sysconf(_SC_OPEN_MAX);
	const int most = open_max > 0 && open_max < MOST_FILES ? (int)open_max : MOST_FILES;
	uint32_t queue = 0;

	for (int fd = 0; fd < most && queue < port->hw; fd++) {
		struct kvr_port_wait *wait;

		if (!(xdp ? is_new_xdp_socket(fd) : is_packet_socket(fd, port->dev.if_index)))
			continue;
		wait = wait_on(port, queue++, fd);
		if (wait == NULL || !xdp)
			continue;
		wait->xdp = true;
		wait->next = sockets;
		sockets = wait;
	}
}

/* Interrupts were requested in configure_dev(). */
static void find_interrupts(struct kvr_port *port)
{
	for (uint32_t queue = 0; port->interrupts && queue < port->hw; queue++) {
		const int fd = rte_eth_dev_rx_intr_ctl_q_get_fd(port->ethdev, (uint16_t)queue);
		const int rc = fd < 0 ? -ENOTSUP
				      : rte_eth_dev_rx_intr_enable(port->ethdev, (uint16_t)queue);
		struct kvr_port_wait *wait =
			rc == 0 || (fd >= 0 && rc == -ENOTSUP) ? wait_on(port, queue, fd) : NULL;

		if (rc == 0)
			rte_eth_dev_rx_intr_disable(port->ethdev, (uint16_t)queue);
		if (wait == NULL || rc != 0)
			continue;
		wait->asks = true;
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	}
}

void kvr_port_wait_start(struct kvr_port *port)
{
	const char *driver = port->dev.driver_name;

	if (strcmp(driver, "net_af_packet") == 0 && port->dev.if_index != 0)
		find_sockets(port, false);
	else if (strcmp(driver, "net_af_xdp") == 0)
		find_sockets(port, true);
	else
		find_interrupts(port);
}

void kvr_port__wait_stop(struct kvr_port *port)
{
	for (uint32_t i = 0; port->queues != NULL && i < port->lcores; i++)
		wait_free(replace_wait(port, i, NULL));
}
