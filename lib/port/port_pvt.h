/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PORT_PVT_H
#define PORT_PVT_H

#include "kvr_port.h"

#include <stdatomic.h>

#include <rte_ethdev.h>

struct kvr_port_wait;

/* State of one lcore at a port: two cache lines of facts, then its send buffer. */
struct kvr_port_queue {
	/*
	 * Current rules. Written by kvr_port_tune(); read by the lcore, and for the first queue by
	 * any lcore.
	 */
	_Atomic(const struct kvr_pkt_rules *) rules;
	kvr_cell_t *row; /* counters: owner lcore rw */
	struct rte_mempool *pool;
	struct kvr_path *asking; /* kvr_port_resolve(): the peer that is searched for, or NULL */
	uint16_t ethdev, queue;
	bool answers4, answers6;
	bool prepare;  /* the driver requires rte_eth_tx_prepare() */
	bool segments; /* the driver sends multi-segment frames */
	bool answered; /* asking has been resolved */
	/* wake-up of a sleeping lcore, or NULL; wait.c */
	_Atomic(struct kvr_port_wait *) wait;
	_Atomic int shut;	/* device restarting or peer connecting: no bursts. Written by
				   kvr_port__gate() */
	uint64_t answer_gap;	/* TSC cycles between answers at answer_rate; 0 = no limit */
	uint64_t answer_due[2]; /* ARP and ND, echo: time of the next answer at that rate */
	struct kvr_port *port;
	struct rte_ring
		*spread; /* datagrams of this lcore's sources that other lcores received, or NULL */
	struct rte_ring *send; /* frames of lcores without a queue of the device, or NULL */
	bool ring_next;	       /* the ring is read before the device */
	bool device_full;      /* the last burst of the device was full */
	bool ring_full;	       /* the last burst of the ring was full */
	bool again;	       /* a retry is in progress */
	uint16_t got;	       /* frames of the last receive burst */
	uint16_t n_tx;
	struct rte_mbuf *tx[KVR_PORT_TX_BUFFER];
} __rte_cache_aligned;

/*
 * Link state. Written by the caller of kvr_port_look_after(), except where marked. link_ctl.c for
 * memif clients, iface_ctl.c for all others.
 */
struct kvr_port_link {
	bool client;  /* false: the members up to reset are unused */
	bool stopped; /* the device is stopped; interrupt thread */
	enum { LINK_UP, LINK_SHUT, LINK_RESET, LINK_HANDSHAKE } state;
	uint32_t handshakes; /* failed in a row */
	uint64_t until;	     /* TSC */
	_Atomic int reset;   /* written by the interrupt thread when done */

	char iface[16]; /* kernel interface; "" = none */
	unsigned int ifindex;
	/* State of the last call. Read by the telemetry thread, relaxed */
	_Atomic enum kvr_port_link_state seen;
	_Atomic uint32_t lost; /* number of losses */
	uint64_t look_at;      /* TSC */
};

/* Ending of error messages. CAP_PERFMON: the program does arithmetic on packet pointers. */
#define KVR_PORT_XDP_NEEDS                                                                         \
	", allowed: to run as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON, " \
	"and locked memory enough"

/* XDP program of a kernel interface, xdp_ctl.c. Control thread only. */
struct kvr_port_xdp {
	bool used; /* our program is used; else the other members are unused */
	int ifindex;
	int claim;		 /* held name of the network namespace; 0 = none */
	int elf;		 /* program file for the driver; 0 = none */
	uint32_t prog_id;	 /* id while attached; 0 = not attached */
	int conf, allow, counts; /* maps; 0 = not open */
	unsigned int cpus;
	bool pinned;
	char iface[16];
	struct kvr_stats *stats;
};

struct kvr_port {
	/*
	 * Usable device queues, 0 to rx_on - 1: all, or as many as a memif peer has rings. Written
	 * by the interrupt thread before the peer is connected; it then waits for the lcores. Read
	 * by lcores, relaxed for that reason.
	 */
	_Atomic uint32_t rx_on, tx_on;
	uint32_t lcores, hw;	      /* entries of queues; device queues among them */
	uint64_t seed;		      /* of the hash that maps a source to an lcore */
	struct kvr_pkt_rules rules;   /* control thread's copy */
	struct kvr_pkt_rules live[2]; /* one of them is in use by the lcores */
	struct kvr_port_conf conf;
	struct rte_eth_dev_info dev;
	char name[64];
	struct kvr_stats *stats;
	struct rte_mempool *pool;
	struct kvr_port_queue *queues;
	struct kvr_port_link link;
	struct kvr_port_xdp xdp;
	uint64_t owner; /* ethdev owner id, 0 = not taken */
	int lock;	/* lock of a memif server's socket; 0 = none */
	int claim[2];	/* held names of the IPv4 and IPv6 address; 0 = none */
	char lock_name[128];
	uint16_t ethdev;
	bool probed, configured, started;
	bool rss, rx_cksum_hw, answers4, answers6;
	bool wakes;	 /* a peer can wake the lcores: wait.c */
	bool interrupts; /* rx interrupts are enabled */
};

/* Buffer of the one-line error of create() and its parts. */
struct port_err {
	char *text;
	size_t len;
};

int kvr_port__fail(struct port_err e, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Value of a device argument into @p out, "" if missing. */
void kvr_port__argument(const char *device, const char *name, char *out, size_t len);

static inline const struct kvr_pkt_rules *kvr_port__rules(const struct kvr_port_queue *q)
{
	/* Pairs with the release store in kvr_port_tune(). */
	return atomic_load_explicit(&q->rules, memory_order_acquire);
}

/* ---- spread_dp.c; rings between lcores ---- */

static inline bool kvr_port__rx_on(const struct kvr_port_queue *q)
{
	return q->queue < atomic_load_explicit(&q->port->rx_on, memory_order_relaxed);
}

static inline bool kvr_port__tx_on(const struct kvr_port_queue *q)
{
	return q->queue < atomic_load_explicit(&q->port->tx_on, memory_order_relaxed);
}

/*
 * Pass a datagram, trimmed to its payload, to the lcore of its source. @return false if that is @p
 * q's lcore; the caller keeps the datagram.
 */
bool kvr_port__spread(struct kvr_port_queue *q, const struct kvr_path *from, struct rte_mbuf *m);

/* Datagrams that other lcores passed to @p q. */
uint16_t kvr_port__take(struct kvr_port_queue *q, struct rte_mbuf *mbufs[], struct kvr_pkt pkts[],
			uint16_t n);

/*
 * Pass finished frames to an lcore with a device queue. @return frames accepted; the rest is freed
 * and counted.
 */
uint16_t kvr_port__pass(struct kvr_port_queue *q, struct rte_mbuf *m[], uint16_t n);

/* spread_ctl.c: choose the number of device queues, and create the rings for the other lcores. */
int kvr_port__choose_queues(struct kvr_port *port, struct port_err e);
int kvr_port__rings_create(struct kvr_port *port, struct port_err e);
/* Free the rings and their contents; no lcore uses them any more. */
void kvr_port__rings_free(struct kvr_port *port);

/* Register a memif server for kvr_port_memif_rings(); unregister it. */
void kvr_port__memif_enter(struct kvr_port *port);
void kvr_port__memif_leave(struct kvr_port *port);

/*
 * claim_ctl.c: hold @p name, which one process of the network namespace can. @return a descriptor
 * to close, or -errno: -EADDRINUSE another process holds it.
 */
int kvr_port__hold(const char *name);

/*
 * Claim the addresses of a port on a kernel interface. @return -EADDRINUSE if another process has
 * one there.
 */
int kvr_port__addresses_claim(struct kvr_port *port, struct port_err e);
void kvr_port__addresses_release(struct kvr_port *port);

/* Claim the socket of a memif server. @return -EADDRINUSE if another process serves it. */
int kvr_port__memif_claim(struct kvr_port *port, struct port_err e);
void kvr_port__memif_release(struct kvr_port *port);
bool kvr_port__memif_client(const struct kvr_port *port);

/*
 * AF_XDP with our program: claim the interface, clean up after a dead process, prepare the program
 * for the driver. Before open.
 */
int kvr_port__xdp_claim(struct kvr_port *port, struct port_err e);
/* Device string to probe: conf.device, with the program if it is ours. */
void kvr_port__xdp_device(const struct kvr_port *port, char *out, size_t len);
/* Fill the maps of the attached program and pin them. After configure. */
int kvr_port__xdp_set_up(struct kvr_port *port, struct port_err e);
/* xdp_rules_ctl.c: apply rules and conf of the port to the program. @return 0 or -errno. */
int kvr_port__xdp_tune(struct kvr_port *port);
/* Add the allow-list to its map, keeping existing elements. @return 0 or -errno. */
int kvr_port__xdp_allow(const struct kvr_port *port);
/* The interface is gone, and so is the program. */
void kvr_port__xdp_gone(struct kvr_port *port);
/* After close. */
void kvr_port__xdp_release(struct kvr_port *port);

/* Find the kernel interface; after open. */
void kvr_port__iface_init(struct kvr_port *port);
enum kvr_port_link_state kvr_port__iface_look(struct kvr_port *port);

void kvr_port__link_init(struct kvr_port *port);
void kvr_port__link_end(struct kvr_port *port);

/* Close or open the gate of all queues: 1 = no bursts. */
static inline void kvr_port__gate(struct kvr_port *port, int shut)
{
	/*
	 * Pairs with the acquire load in is_shut(): makes the started device or connected peer
	 * visible.
	 */
	for (uint32_t i = 0; i < port->lcores; i++)
		atomic_store_explicit(&port->queues[i].shut, shut, memory_order_release);
}
/* @p arg = struct kvr_port; EAL's interrupt thread. */
void kvr_port__link_reset(void *arg);

/*
 * wait.c: set the ring of a queue of a memif server; NULL: gone. @p pass waits for the lcores.
 * Interrupt thread.
 */
void kvr_port__wait_ring(struct kvr_port *port, uint32_t queue, const struct kvr_port_ring_at *at,
			 void (*pass)(void *arg), void *arg);
/* Remove all wake-ups; no lcore runs. */
void kvr_port__wait_stop(struct kvr_port *port);

/* Find or probe conf.device and become its owner. */
int kvr_port__open(struct kvr_port *port, struct port_err e);
/* Configure queues and offloads, allocate the pool. */
int kvr_port__configure(struct kvr_port *port, struct port_err e);
/* Undo open and configure. */
void kvr_port__close(struct kvr_port *port);

#endif
