/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PORT_H
#define KVR_PORT_H

/**
 * @file
 * A DPDK port with the router's addresses on it. Control creates, starts, stops and destroys;
 * each (port, queue) pair belongs to one lcore at a time, which receives parsed datagrams,
 * sends payloads along paths and flushes once per loop. ARP, neighbour discovery and echo are
 * answered inside the receive call.
 *
 * There is a queue for each lcore, whether the device has as many or not. Where it has fewer, or
 * the peer of a memif has connected fewer, the lcores that own one of the device spread: a datagram
 * goes through a ring to the lcore that its source address names, and what the others send comes
 * back through a ring, its headers written. Both rings are bounded, what does not fit is dropped
 * and counted by its sender (spread_full, tx_dropped). Budget: 60 cycles a frame and ring.
 *
 * Who may speak: lcores read one of two copies of the rules. Control changes the one that none of
 * them has, hands it to every lcore and waits until each has ended a turn (kvr_port_tune()).
 *
 * Counters (kvr_port_stats): the equations between them, in port_conf.c, are true between bursts.
 *
 * Works with any ethdev; tried with net_memif (both roles), net_ring, net_null, net_tap,
 * net_af_packet, net_af_xdp. Offloads are used only when the driver offers them.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "kvr_conf.h"
#include "kvr_path.h"
#include "kvr_pkt.h"
#include "kvr_stats.h"

#define KVR_PORT_MAX	    16u /* ports of one router */
#define KVR_PORT_MAX_QUEUES 64u
#define KVR_PORT_TX_BUFFER  32u
#define KVR_PORT_BURST	    32u
#define KVR_PORT_RING	    1024u /* frames, of the rings between lcores: one each way for each */

/* Characters of a list of KVR_PKT_MAX_ALLOW prefixes, each with its separator. */
#define KVR_PORT_ALLOW_LEN (KVR_PKT_MAX_ALLOW * 50u)

enum kvr_port_tx_checksum { KVR_PORT_TX_AUTO, KVR_PORT_TX_SOFTWARE, KVR_PORT_TX_NONE };
enum kvr_port_rx_checksum { KVR_PORT_RX_TRUST, KVR_PORT_RX_VERIFY };
enum kvr_port_answer { KVR_PORT_ANSWER_AUTO, KVR_PORT_ANSWER_ON, KVR_PORT_ANSWER_OFF };

/** Keys of a [port NAME] section; kvr_port_opts is the table. */
struct kvr_port_conf {
	char device[256]; /* "net_memif0,role=server", "0000:3b:00.0", port name or index */
	char ipv4[16];	  /* the router's address; "" = none */
	char ipv6[46];	  /* "" = none; one of both is needed */
	char mac[18];	  /* "" = the device's */
	uint32_t udp_port;
	uint32_t queues; /* rx/tx queue pairs of the device; 0: one for each lcore, if it can */
	uint32_t rx_descriptors; /* per queue */
	uint32_t tx_descriptors;
	uint32_t mbufs;	      /* of the port's pool; 0 = computed from the descriptors */
	uint32_t mbuf_cache;  /* per lcore */
	uint32_t mtu;	      /* IP packet bytes: 1500, 9000 */
	uint32_t vlan;	      /* 0 = untagged and any tag; else only this */
	int tx_checksum;      /* enum kvr_port_tx_checksum */
	int rx_checksum;      /* enum kvr_port_rx_checksum */
	int answer_arp;	      /* enum kvr_port_answer: ARP, neighbour discovery, echo */
	uint32_t answer_rate; /* a second and queue, of ARP and ND and of echo each; 0 = no limit */
	bool promiscuous;
	bool xdp;	   /* net_af_xdp without xdp_prog: our program */
	uint32_t xdp_rate; /* frames a second of one source, dropped before the router; 0 = no limit
			    */
	uint32_t xdp_burst;		/* at once */
	char allow[KVR_PORT_ALLOW_LEN]; /* source prefixes, separated by blanks or commas; "" = all
					 */
	char allow_agents[KVR_PORT_ALLOW_LEN]; /* those of them whose agents may register workers */
	bool cookie; /* addresses must prove themselves before they get more than they send */
	uint32_t source_rate;	 /* requests a second of one source; 0 = no limit */
	uint32_t source_burst;	 /* at once */
	uint32_t source_control; /* CONNECT and HELLO a second of one source; 0 = no limit */
	uint32_t
		source_answers; /* answers a second to refused frames of one source; 0 = no limit */
	bool interrupts; /* no key: ask the driver for rx interrupts, for kvr_port_wait_start() */
};
extern const struct kvr_opt kvr_port_opts[];

/** Frames that the rings between @p lcores lcores of a port hold at most. */
static inline uint32_t kvr_port_ring_frames(uint32_t lcores)
{
	return lcores > 1 ? 2 * lcores * KVR_PORT_RING : 0;
}

/** Received frames by what became of them, in the order of enum kvr_pkt_verdict. */
#define KVR_PORT_VERDICT_LIST(X)                                                                   \
	X(KVR_PORT_RX_UDP, rx_udp, COUNT, "frames", "datagrams for the router")                    \
	X(KVR_PORT_RX_ARP, rx_arp, COUNT, "frames", "ARP for our address")                         \
	X(KVR_PORT_RX_ND, rx_nd, COUNT, "frames", "neighbour discovery for our address")           \
	X(KVR_PORT_RX_ECHO, rx_echo, COUNT, "frames", "echo requests to our address")              \
	X(KVR_PORT_RX_OTHER_MAC, rx_other_mac, COUNT, "frames", "to another MAC or group")         \
	X(KVR_PORT_RX_OTHER_ADDR, rx_other_addr, COUNT, "frames", "to another IP address")         \
	X(KVR_PORT_RX_OTHER_PORT, rx_other_port, COUNT, "frames", "to another UDP port")           \
	X(KVR_PORT_RX_OTHER_PROTO, rx_other_proto, COUNT, "frames", "not UDP")                     \
	X(KVR_PORT_RX_OTHER_VLAN, rx_other_vlan, COUNT, "frames", "of another VLAN")               \
	X(KVR_PORT_RX_TRUNCATED, rx_truncated, COUNT, "frames", "shorter than their headers say")  \
	X(KVR_PORT_RX_BAD_IP, rx_bad_ip, COUNT, "frames", "bad IP version or lengths")             \
	X(KVR_PORT_RX_BAD_IP_SUM, rx_bad_ip_sum, COUNT, "frames", "bad IPv4 header checksum")      \
	X(KVR_PORT_RX_FRAGMENT, rx_fragment, COUNT, "frames", "IP fragments")                      \
	X(KVR_PORT_RX_IP6_EXT, rx_ip6_ext, COUNT, "frames", "IPv6 extension headers")              \
	X(KVR_PORT_RX_BAD_UDP, rx_bad_udp, COUNT, "frames", "bad UDP length")                      \
	X(KVR_PORT_RX_BAD_UDP_SUM, rx_bad_udp_sum, COUNT, "frames", "bad UDP or ICMP checksum")    \
	X(KVR_PORT_RX_BAD_SOURCE, rx_bad_source, COUNT, "frames",                                  \
	  "source that cannot be answered")                                                        \
	X(KVR_PORT_RX_DENIED, rx_denied, COUNT, "frames", "source not in the allow-list")          \
	X(KVR_PORT_RX_SEGMENTS, rx_segments, COUNT, "frames",                                      \
	  "in several buffers that could not be joined")

#define KVR_PORT_COUNTER_LIST(X)                                                                   \
	X(KVR_PORT_RX_FRAMES, rx_frames, COUNT, "frames", "frames received")                       \
	X(KVR_PORT_RX_BYTES, rx_bytes, COUNT, "bytes", "bytes received, without CRC")              \
	KVR_PORT_VERDICT_LIST(X)                                                                   \
	X(KVR_PORT_RX_KEPT, rx_kept, COUNT, "frames", "datagrams given to this lcore's stages")    \
	X(KVR_PORT_SPREAD_IN, spread_in, COUNT, "frames", "datagrams that another lcore received") \
	X(KVR_PORT_SPREAD_OUT, spread_out, COUNT, "frames",                                        \
	  "datagrams given to the lcore of their source")                                          \
	X(KVR_PORT_SPREAD_FULL, spread_full, COUNT, "frames",                                      \
	  "datagrams dropped: the ring to the lcore of their source is full")                      \
	X(KVR_PORT_TX_OFFERED, tx_offered, COUNT, "frames", "frames asked to send")                \
	X(KVR_PORT_TX_TAKEN, tx_taken, COUNT, "frames", "frames that other lcores asked to send")  \
	X(KVR_PORT_TX_PASSED, tx_passed, COUNT, "frames",                                          \
	  "frames given to an lcore with a device queue")                                          \
	X(KVR_PORT_TX_SENT, tx_sent, COUNT, "frames", "frames the device took")                    \
	X(KVR_PORT_TX_BYTES, tx_bytes, COUNT, "bytes", "bytes of the sent, without CRC")           \
	X(KVR_PORT_TX_DROPPED, tx_dropped, COUNT, "frames", "device or ring stayed full")          \
	X(KVR_PORT_TX_REFUSED, tx_refused, COUNT, "frames", "could not be sent as asked")          \
	X(KVR_PORT_TX_BUFFERED, tx_buffered, GAUGE, "frames", "waiting for the end of the loop")   \
	X(KVR_PORT_TX_RETRIES, tx_retries, COUNT, "bursts", "bursts repeated, device full")        \
	X(KVR_PORT_ANSWERED, answered, COUNT, "frames", "ARP, ND and echo answers")                \
	X(KVR_PORT_UNANSWERED, unanswered, COUNT, "frames", "asked for more than answer_rate")

/** Index of each counter; verdict v of a received frame counts at KVR_PORT_RX_VERDICT + v. */
enum kvr_port_counter {
	KVR_PORT_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_PORT_COUNTERS,
	KVR_PORT_RX_VERDICT = KVR_PORT_RX_UDP
};
_Static_assert(KVR_PORT_RX_KEPT - KVR_PORT_RX_VERDICT == KVR_PKT_VERDICTS, "one each");
extern const struct kvr_stats_def kvr_port_stats_def;

/** Frames at the XDP program, by what became of them: enum kvr_xdp_count. */
extern const struct kvr_stats_def kvr_port_xdp_stats_def;
/** Of them, the first that it drops; so are all behind. */
extern const unsigned int kvr_port_xdp_drops;

struct kvr_port;
struct kvr_port_queue;

/**
 * Find or probe the device, check it against @p conf, configure it and allocate its pool. EAL must
 * be up. @p index is the path's port number. Control thread.
 * @return the port; NULL with errno, and one line `key: what is wrong and what is allowed` in
 * @p err: ENODEV no such device, EBUSY it is used already, EINVAL bad value, ERANGE beyond the
 * driver's limit, ENOMEM, or the driver's error.
 */
struct kvr_port *kvr_port_create(const char *name, const struct kvr_port_conf *conf,
				 unsigned int index, char *err, size_t errlen);

/** The same for @p lcores lcores, whether the device has a queue for each or not: above, there are
 * as many as conf->queues. */
struct kvr_port *kvr_port_create_shared(const char *name, const struct kvr_port_conf *conf,
					unsigned int index, uint32_t lcores, char *err,
					size_t errlen);

/** Start receiving. @return 0 or -errno with a line in @p err. */
int kvr_port_start(struct kvr_port *p, char *err, size_t errlen);

/** Stop; no lcore may be inside a burst call. What is still buffered is freed and counted. */
void kvr_port_stop(struct kvr_port *p);

/** Stop if needed, close the device (also remove it when create() probed it), free. NULL is ok. */
void kvr_port_destroy(struct kvr_port *p);

/** The link below a port. What DPDK's state of it is; of a kernel interface, what the kernel's is.
 */
enum kvr_port_link_state {
	KVR_PORT_UP,
	KVR_PORT_DOWN, /**< no carrier, or set down; for a memif: nobody is connected */
	KVR_PORT_GONE, /**< the kernel interface was removed; the port stays without one until a
			  restart */
};

/**
 * Look at the link, again and again, @p now in TSC cycles; what was looked at less than 50 ms ago
 * is not looked at again (250 ms for what needs the kernel). One thread; makes system calls.
 *
 * A memif client whose server has gone does not come back by itself: while the link is down bursts
 * are kept away (nothing is received, what is sent is dropped and counted), and the device is
 * stopped and started on the EAL's interrupt thread until there is a server; this call does not
 * wait for that. When a kernel interface has gone, the kernel has taken our XDP program off: its
 * pins are removed, and another router may have the name.
 * @param wait  returns when every burst call that was running has ended; NULL when no other thread
 * makes any
 * @return the state as of the last look
 */
enum kvr_port_link_state kvr_port_look_after(struct kvr_port *p, uint64_t now,
					     void (*wait)(void *arg), void *arg);

/** Facts about a port, for telemetry and start-up messages. */
struct kvr_port_info {
	const char *name;	       /* of the section */
	const char *driver;	       /* "net_memif" */
	uint16_t ethdev;	       /* DPDK's port id */
	uint16_t lcores;	       /* that use it: kvr_port_queue() */
	uint16_t queues;	       /* pairs of the device */
	uint16_t rx_queues, tx_queues; /* of them, those that are connected */
	uint16_t mtu;
	int socket; /* NUMA node, -1 unknown */
	bool link_up;
	uint32_t link_mbps;
	uint32_t link_lost; /* times it went down, as kvr_port_look_after() saw it */
	bool rss;	    /* several queues and the device spreads by UDP flow */
	bool rx_cksum_hw, tx_cksum_hw;
	bool answers4, answers6; /* ARP and echo; ND and echo */
	uint32_t mbufs, mbufs_free;
};
void kvr_port_info(struct kvr_port *p, struct kvr_port_info *out);

/**
 * Take the XDP program that a dead router has left off the interface of @p conf, and its pins; for
 * a device without one, an interface that is gone or that a router serves, nothing. Needs no EAL;
 * any thread. CAP_NET_ADMIN, and CAP_SYS_ADMIN to tell whose program it is.
 * @return 0; -EBUSY the program is not ours or cannot be told, -errno of the kernel: text in err.
 */
int kvr_port_xdp_off(const struct kvr_port_conf *conf, char *err, size_t errlen);

/**
 * The XDP program of this port's interface: whether it sends frames to the router, or leaves them
 * all to the kernel (the router then hears nobody). On from start to stop. Control thread.
 * @return 0; -ENOTSUP the port has none of ours; -errno of the kernel.
 */
int kvr_port_xdp_redirect(struct kvr_port *p, bool on);

/** @return whether it does; negative: as above. Any thread. */
int kvr_port_xdp_redirects(const struct kvr_port *p);

/** Its counters as of now, read from the kernel. Control thread, or one at a time. NULL: the port
 * has none of ours. */
struct kvr_stats *kvr_port_xdp_stats(struct kvr_port *p);

/**
 * A peer is about to be connected to the memif server of this process that has @p socket and
 * interface @p id, with so many rings. Device queues without a ring are not used from now on: the
 * driver would have them poll, and write into, a ring of another queue. Until
 * kvr_port_memif_connected() bursts find nothing and send nothing: the driver's burst calls look
 * where a ring is before they look whether there is a peer. It must not be connected before every
 * burst call that was running has ended. EAL's interrupt thread.
 */
void kvr_port_memif_rings(const char *socket, uint32_t id, uint32_t to_server,
			  uint32_t from_server);

/** That is over, with a peer or without. EAL's interrupt thread. */
void kvr_port_memif_connected(const char *socket, uint32_t id);

/* ---- lcores that sleep ---- */

/**
 * From now on kvr_port_wait_arm() finds what wakes the lcores of this port, where its driver has
 * something: net_af_packet, net_af_xdp, drivers with rx interrupts (kvr_port_conf::interrupts), and
 * net_memif as a server, whose rings kvr_port_memif_ring() tells. Started port; before its lcores
 * run and before another port is created. Control thread.
 */
void kvr_port_wait_start(struct kvr_port *p);

/** Where the ring of a memif server's rx queue lies: the file of its memory, the file its peer
 * writes to. Both are copied. */
struct kvr_port_ring_at {
	int region, event;
	uint32_t offset;
};

/** The peer of the memif server with @p socket and @p id is about to be connected, and this is its
 * ring; @p at NULL: it has gone. @p pass waits for all lcores. EAL's interrupt thread. */
void kvr_port_memif_ring(const char *socket, uint32_t id, uint32_t queue,
			 const struct kvr_port_ring_at *at, void (*pass)(void *arg), void *arg);

/**
 * The owner lcore is about to sleep: @p fd becomes readable when the device has something; -1:
 * nothing can come that way until the next call (no peer, or a queue that other lcores read).
 * May enter the kernel. @return 0; -EAGAIN there are frames already; -ENOTSUP the device cannot.
 */
int kvr_port_wait_arm(struct kvr_port_queue *q, int *fd);

/** It is awake again, whatever woke it. May enter the kernel. Owner lcore. */
void kvr_port_wait_disarm(struct kvr_port_queue *q);

struct rte_tel_data;

/** Facts and counters into a started telemetry dictionary. */
int kvr_port_tel(struct kvr_port *p, struct rte_tel_data *d);

/** Getters. Any thread. */
unsigned int kvr_port_index(const struct kvr_port *p);
const struct kvr_local *kvr_port_local(const struct kvr_port *p);

/**
 * Take the source prefixes (`allow`, `allow_agents`), `xdp_rate` and `xdp_burst` of @p conf while
 * the port runs; the rest of @p conf is only checked. @p wait returns when every lcore has ended
 * the turn it is in. Any thread but the lcores'; one call at a time, and none of
 * kvr_port_xdp_redirect() meanwhile.
 * @return 0; -EINVAL, or -errno of the kernel, with one line in @p err: all is as it was.
 */
int kvr_port_tune(struct kvr_port *p, const struct kvr_port_conf *conf, void (*wait)(void *arg),
		  void *arg, char *err, size_t errlen);

/** Whether agents at @p ip (IPv4 mapped) may register workers here. Any lcore: these are waited for
 * by kvr_port_tune() before it writes what this reads. */
bool kvr_port_agent_allowed(const struct kvr_port *p, const uint8_t ip[16]);
struct rte_mempool *kvr_port_pool(struct kvr_port *p);
struct kvr_stats *kvr_port_stats(struct kvr_port *p);

/** Datagrams and frames in the rings between its lcores. Any thread. */
uint32_t kvr_port_waiting(const struct kvr_port *p);

/** Queue of lcore @p i of the port; that lcore owns it from start to stop. */
struct kvr_port_queue *kvr_port_queue(struct kvr_port *p, unsigned int i);

/**
 * Receive up to @p n (at most KVR_PORT_BURST) frames and keep the datagrams for the router:
 * mbufs[i] trimmed to the UDP payload (one segment, headers still in its headroom), pkts[i]
 * describes it; of a frame that another lcore received only path, len and verdict are set.
 * Everything else is answered or counted and freed here. Ask for KVR_PORT_BURST: some vector
 * drivers give nothing for less. Owner lcore.
 * @return datagrams stored; the caller owns their mbufs. 0 does not mean the queue was empty.
 */
uint16_t kvr_port_rx_burst(struct kvr_port_queue *q, struct rte_mbuf *mbufs[],
			   struct kvr_pkt pkts[], uint16_t n);

/** Frames that the last kvr_port_rx_burst() had from the device, of whatever kind, or from the
 * ring. Owner lcore. */
uint16_t kvr_port_rx_got(const struct kvr_port_queue *q);

/**
 * Whether more may wait than was taken: the device, or the ring, gave as much as was asked for when
 * it last had its turn. An lcore that has both takes from them in turns, and a ring with little in
 * it says nothing about the device. Owner lcore.
 */
bool kvr_port_rx_full(const struct kvr_port_queue *q);

/** Whether all datagrams of a source address come to one lcore, as some lcore has no queue of the
 * device. May change when a memif peer connects. Any lcore. */
bool kvr_port_spreads(const struct kvr_port_queue *q);

/** An empty mbuf with the full headroom, or NULL. Owner lcore. */
struct rte_mbuf *kvr_port_alloc(struct kvr_port_queue *q);

/**
 * Send @p m, which holds exactly a UDP payload, along @p path: headers are written at once, the
 * frame leaves with the next flush or when the buffer is full. Takes @p m in every case. A
 * refcnt above 1 is refused (headers are written in place). Owner lcore of @p q, a queue of the
 * port path->port.
 * @return 0; negative: refused and counted (see kvr_path_write(); -EBUSY shared mbuf).
 */
int kvr_port_send(struct kvr_port_queue *q, const struct kvr_path *path, struct rte_mbuf *m);

/** Give buffered frames to the device, or to an lcore that has a queue of it, and what other lcores
 * gave this one; what is not taken after bounded retries is dropped and counted. Call once per
 * loop. @return frames that left this lcore. Owner lcore. */
uint16_t kvr_port_flush(struct kvr_port_queue *q);

/** Inside a transmit callback of the device: whether these frames have passed by before, as it did
 * not take them at once. Owner lcore of the queue. */
bool kvr_port_tx_again(const struct kvr_port_queue *q);

/**
 * Fill @p path for a peer on the same link that has not spoken yet: ARP or neighbour discovery, a
 * request every 100 ms. Other frames that arrive meanwhile are dropped (counted). Start-up only:
 * polls for up to @p timeout_ms.
 * @p ip as in struct kvr_path. @return 0; -EHOSTUNREACH nobody answered; -EAFNOSUPPORT.
 */
int kvr_port_resolve(struct kvr_port_queue *q, const uint8_t ip[16], uint16_t udp_port,
		     uint32_t timeout_ms, struct kvr_path *path);

/**
 * Check the texts of @p conf and build the rules of what is for us (MAC and offloads are left to
 * create()). No EAL. @return 0, or -EINVAL with `key: ...` in @p err.
 */
int kvr_port_rules(const struct kvr_port_conf *conf, unsigned int index,
		   struct kvr_pkt_rules *rules, char *err, size_t errlen);

/** "10.0.0.1" or "fd00::1" to the 16 bytes of a path. @return family 4 or 6, or -EINVAL. */
int kvr_ip_parse(const char *text, uint8_t ip[16]);

/** 16 bytes of a path to text; returns @p buf (46 bytes suffice). */
const char *kvr_ip_text(const uint8_t ip[16], char *buf, size_t len);

#endif
