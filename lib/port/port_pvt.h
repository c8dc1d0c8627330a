/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PORT_PVT_H
#define PORT_PVT_H

#include "kvr_port.h"

#include <stdatomic.h>

#include <rte_ethdev.h>

struct kvr_port_wait;

/* What one lcore needs of a port; two lines of facts, then its send buffer. */
struct kvr_port_queue {
	/* Of now. kvr_port_tune(): w; its lcore, of the first queue any: r */
	_Atomic(const struct kvr_pkt_rules *) rules;
	kvr_cell_t *row; /* counters: owner lcore rw */
	struct rte_mempool *pool;
	struct kvr_path *asking; /* kvr_port_resolve(): the peer looked for, or NULL */
	uint16_t ethdev, queue;
	bool answers4, answers6;
	bool prepare;  /* the driver wants rte_eth_tx_prepare() */
	bool segments; /* the driver sends several segments */
	bool answered; /* asking was found */
	/* what wakes a sleeping lcore, or NULL; wait.c */
	_Atomic(struct kvr_port_wait *) wait;
	_Atomic int shut;	/* the device is started anew, or gets its peer: no bursts.
				   kvr_port__gate(): w */
	uint64_t answer_gap;	/* TSC cycles between answers at their rate; 0: no limit */
	uint64_t answer_due[2]; /* ARP and ND, echo: when the next one is, at that rate */
	struct kvr_port *port;
	struct rte_ring *spread; /* datagrams of its sources that other lcores received, or NULL */
	struct rte_ring *send;	 /* frames of lcores without a queue of the device, or NULL */
	bool ring_next;		 /* the ring has its turn before the device */
	bool device_full;	 /* the device gave as many as asked for when it had its turn */
	bool ring_full;		 /* the same of the ring */
	bool again;		 /* the device is given what it did not take at once */
	uint16_t got;		 /* frames of the last receive burst */
	uint16_t n_tx;
	struct rte_mbuf *tx[KVR_PORT_TX_BUFFER];
} __rte_cache_aligned;

/* The link: whoever calls kvr_port_look_after(), and what is marked. Of a memif client link_ctl.c,
 * of everything else iface_ctl.c. */
struct kvr_port_link {
	bool client;  /* else nothing of this part is used */
	bool stopped; /* the device; interrupt thread */
	enum { LINK_UP, LINK_SHUT, LINK_RESET, LINK_HANDSHAKE } state;
	uint32_t handshakes; /* that have failed, one after the other */
	uint64_t until;	     /* TSC */
	_Atomic int reset;   /* the interrupt thread: w, when it is done */

	char iface[16]; /* the kernel's interface; "": none */
	unsigned int ifindex;
	/* As of the last look. The telemetry thread: r, relaxed */
	_Atomic enum kvr_port_link_state seen;
	_Atomic uint32_t lost; /* times */
	uint64_t look_at;      /* TSC */
};

/* A tail of messages. CAP_PERFMON: the program computes with addresses of the packet. */
#define KVR_PORT_XDP_NEEDS                                                                         \
	", allowed: to run as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON, " \
	"and locked memory enough"

/* The XDP program of a kernel interface, xdp_ctl.c: control only. */
struct kvr_port_xdp {
	bool used; /* ours is asked for; else nothing of this is used */
	int ifindex;
	int claim;	  /* a name that one process of the network namespace holds; 0: none */
	int elf;	  /* the program for the driver to load; 0: none */
	uint32_t prog_id; /* as attached, 0: not */
	int conf, allow, counts; /* maps, 0: not open */
	unsigned int cpus;
	bool pinned;
	char iface[16];
	struct kvr_stats *stats;
};

struct kvr_port {
	/* Device queues that may be used, 0 to so many - 1: all, or as many as a memif peer has
	 * rings. The interrupt thread: w, before the device is connected, and it waits for the
	 * lcores between the two; lcores: r, relaxed for that reason. */
	_Atomic uint32_t rx_on, tx_on;
	uint32_t lcores, hw;	      /* queues below; of them, those that the device has */
	uint64_t seed;		      /* of the lcore of a source */
	struct kvr_pkt_rules rules;   /* of control */
	struct kvr_pkt_rules live[2]; /* copies: one is the lcores' */
	struct kvr_port_conf conf;
	struct rte_eth_dev_info dev;
	char name[64];
	struct kvr_stats *stats;
	struct rte_mempool *pool;
	struct kvr_port_queue *queues;
	struct kvr_port_link link;
	struct kvr_port_xdp xdp;
	uint64_t owner; /* ethdev owner id, 0 = not taken */
	int lock;	/* of a memif server's socket; 0: none */
	int claim[2];	/* names of its IPv4 and IPv6 address; 0: none */
	char lock_name[128];
	uint16_t ethdev;
	bool probed, configured, started;
	bool rss, rx_cksum_hw, answers4, answers6;
	bool wakes;	 /* when it has a peer: wait.c */
	bool interrupts; /* of its rx queues were asked for, and the driver did not refuse */
};

/* Where create() and its parts write their one line. */
struct port_err {
	char *text;
	size_t len;
};

int kvr_port__fail(struct port_err e, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Value of a device argument into @out, "" when it is not given. */
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

/* Give a datagram, trimmed to its payload, to the lcore of its source. @return false: that is @q's
 * own, and it is still the caller's. */
bool kvr_port__spread(struct kvr_port_queue *q, const struct kvr_path *from, struct rte_mbuf *m);

/* Datagrams that others gave @q. */
uint16_t kvr_port__take(struct kvr_port_queue *q, struct rte_mbuf *mbufs[], struct kvr_pkt pkts[],
			uint16_t n);

/* Give finished frames to an lcore with a queue of the device. @return those it takes; the rest is
 * freed and counted. */
uint16_t kvr_port__pass(struct kvr_port_queue *q, struct rte_mbuf *m[], uint16_t n);

/* spread_ctl.c: how many queues of the device are used, and the rings for the other lcores. */
int kvr_port__choose_queues(struct kvr_port *p, struct port_err e);
int kvr_port__rings_create(struct kvr_port *p, struct port_err e);
/* Nobody uses them; what they hold is freed. */
void kvr_port__rings_free(struct kvr_port *p);

/* Among the memif servers that kvr_port_memif_rings() looks for; and no more. */
void kvr_port__memif_enter(struct kvr_port *p);
void kvr_port__memif_leave(struct kvr_port *p);

/* claim_ctl.c: hold @p name, which one process of the network namespace can. @return a descriptor,
 * to be closed, or -errno: -EADDRINUSE another one has it. */
int kvr_port__hold(const char *name);

/* The addresses of a port at an interface of the kernel: -EADDRINUSE when another process has one
 * there. */
int kvr_port__addresses_claim(struct kvr_port *p, struct port_err e);
void kvr_port__addresses_release(struct kvr_port *p);

/* Take the socket of a memif server: -EADDRINUSE when another process serves it. */
int kvr_port__memif_claim(struct kvr_port *p, struct port_err e);
void kvr_port__memif_release(struct kvr_port *p);
bool kvr_port__memif_client(const struct kvr_port *p);

/* AF_XDP with our program: take the interface, clean up after a process that died, have the program
 * ready for the driver. Before open. */
int kvr_port__xdp_claim(struct kvr_port *p, struct port_err e);
/* What to probe: conf.device, with the program when it is ours. */
void kvr_port__xdp_device(const struct kvr_port *p, char *out, size_t len);
/* The driver has attached it: fill its maps and pin them. After configure. */
int kvr_port__xdp_set_up(struct kvr_port *p, struct port_err e);
/* xdp_rules_ctl.c: the program obeys rules and conf of the port from now on. @return 0 or -errno.
 */
int kvr_port__xdp_tune(struct kvr_port *p);
/* The allow-list into its map, beside what is there. @return 0 or -errno. */
int kvr_port__xdp_allow(const struct kvr_port *p);
/* The interface has gone, and the program with it. */
void kvr_port__xdp_gone(struct kvr_port *p);
/* After close. */
void kvr_port__xdp_release(struct kvr_port *p);

/* Find the kernel's interface; after open. */
void kvr_port__iface_init(struct kvr_port *p);
enum kvr_port_link_state kvr_port__iface_look(struct kvr_port *p);

void kvr_port__link_init(struct kvr_port *p);
void kvr_port__link_end(struct kvr_port *p);

/* Of all its queues. */
static inline void kvr_port__gate(struct kvr_port *p, int shut)
{
	/* Pairs with the acquire load in rx_burst and flush: the device that was started, or the
	 * peer that was connected, is seen. */
	for (uint32_t i = 0; i < p->lcores; i++)
		atomic_store_explicit(&p->queues[i].shut, shut, memory_order_release);
}
/* @arg = struct kvr_port; EAL's interrupt thread. */
void kvr_port__link_reset(void *arg);

/* wait.c: the ring of a queue of a memif server, NULL when it has gone; @pass waits for the lcores.
 * Interrupt thread. */
void kvr_port__wait_ring(struct kvr_port *p, uint32_t queue, const struct kvr_port_ring_at *at,
			 void (*pass)(void *arg), void *arg);
/* Nothing wakes anybody any more; no lcore runs. */
void kvr_port__wait_stop(struct kvr_port *p);

/* Find or probe conf.device and own it. */
int kvr_port__open(struct kvr_port *p, struct port_err e);
/* Configure queues and offloads, allocate the pool. */
int kvr_port__configure(struct kvr_port *p, struct port_err e);
/* Undo both. */
void kvr_port__close(struct kvr_port *p);

#endif
