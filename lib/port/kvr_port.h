/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PORT_H
#define KVR_PORT_H

/**
 * @file
 * A DPDK port with the router's addresses. The control thread creates, starts, stops and destroys
 * it. Each (port, queue) pair belongs to one lcore at a time, which receives parsed datagrams,
 * sends payloads along paths and flushes once per loop. ARP, neighbour discovery and echo are
 * answered inside the receive call.
 *
 * Every lcore has a queue here, whether the device has as many or not. If the device, or the peer
 * of a memif, has fewer, the lcores with a device queue distribute the received datagrams: each
 * goes through a ring to the lcore selected by its source address. Frames of the other lcores go
 * through a second ring, with complete headers, to an lcore with a device queue. Both rings are
 * bounded; the sender drops and counts frames that do not fit (spread_full, tx_dropped). Budget: 60
 * cycles a frame and ring.
 *
 * Allow-lists: lcores read one of two copies of the rules. The control thread writes the unused
 * copy, publishes it to every lcore and waits until each has finished a turn (kvr_port_tune()).
 *
 * Counters (kvr_port_stats): the equations in port_conf.c hold between bursts.
 *
 * Works with any ethdev; tested with net_memif (both roles), net_ring, net_null, net_tap,
 * net_af_packet, net_af_xdp. Offloads are used only if the driver supports them.
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
#define KVR_PORT_RING	    1024u /* places of each ring between lcores: one each way per lcore */

/* Characters of a list of KVR_PKT_MAX_ALLOW prefixes, each with its separator. */
#define KVR_PORT_ALLOW_LEN (KVR_PKT_MAX_ALLOW * 50u)

enum kvr_port_tx_checksum { KVR_PORT_TX_AUTO, KVR_PORT_TX_SOFTWARE, KVR_PORT_TX_NONE };
enum kvr_port_rx_checksum { KVR_PORT_RX_TRUST, KVR_PORT_RX_VERIFY };
enum kvr_port_answer { KVR_PORT_ANSWER_AUTO, KVR_PORT_ANSWER_ON, KVR_PORT_ANSWER_OFF };

/** Keys of a [port NAME] section; kvr_port_opts is the table. */
struct kvr_port_conf {
	char device[256]; /* "net_memif0,role=server", "0000:3b:00.0", port name or index */
	char ipv4[16];	  /* the router's address; "" = none */
	char ipv6[46];	  /* "" = none; at least one address is required */
	char mac[18];	  /* "" = the device's MAC */
	uint32_t udp_port;
	uint32_t queues;	 /* queue pairs of the device; 0 = one per lcore, if possible */
	uint32_t rx_descriptors; /* per queue */
	uint32_t tx_descriptors;
	uint32_t mbufs;	      /* of the port's pool; 0 = computed from the descriptors */
	uint32_t mbuf_cache;  /* per lcore */
	uint32_t mtu;	      /* IP packet bytes: 1500, 9000 */
	uint32_t vlan;	      /* 0 = untagged and any tag; else only this */
	int tx_checksum;      /* enum kvr_port_tx_checksum */
	int rx_checksum;      /* enum kvr_port_rx_checksum */
	int answer_arp;	      /* enum kvr_port_answer: ARP, neighbour discovery, echo */
	uint32_t answer_rate; /* per second and queue, ARP and ND, echo; 0 = no limit */
	bool promiscuous;
	bool xdp;			/* net_af_xdp: use our XDP program */
	uint32_t xdp_rate;		/* frames per second of one source; 0 = no limit */
	uint32_t xdp_burst;		/* frames at once */
	char allow[KVR_PORT_ALLOW_LEN]; /* source prefixes, blanks or commas between; "" = all */
	char allow_agents[KVR_PORT_ALLOW_LEN]; /* subset whose agents may register workers */
	bool cookie;			       /* clients must prove their address */
	uint32_t source_rate;		       /* requests per second of one source; 0 = no limit */
	uint32_t source_burst;		       /* requests at once */
	uint32_t source_control; /* CONNECT and HELLO per second of one source; 0 = no limit */
	uint32_t source_answers; /* REJECTED per second to one source; 0 = no limit */
	bool interrupts;	 /* not a key: enable rx interrupts, for kvr_port_wait_start() */
};
extern const struct kvr_opt kvr_port_opts[];

/** Maximum frames in the rings between @p lcores lcores of a port. */
static inline uint32_t kvr_port_ring_frames(uint32_t lcores)
{
	return lcores > 1 ? 2 * lcores * KVR_PORT_RING : 0;
}

/** Received frames by verdict, in the order of enum kvr_pkt_verdict. */
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
	X(KVR_PORT_RX_TRUNCATED, rx_truncated, COUNT, "frames",                                    \
	  "shorter than their header lengths")                                                     \
	X(KVR_PORT_RX_BAD_IP, rx_bad_ip, COUNT, "frames", "bad IP version or lengths")             \
	X(KVR_PORT_RX_BAD_IP_SUM, rx_bad_ip_sum, COUNT, "frames", "bad IPv4 header checksum")      \
	X(KVR_PORT_RX_FRAGMENT, rx_fragment, COUNT, "frames", "IP fragments")                      \
	X(KVR_PORT_RX_IP6_EXT, rx_ip6_ext, COUNT, "frames", "IPv6 extension headers")              \
	X(KVR_PORT_RX_BAD_UDP, rx_bad_udp, COUNT, "frames", "bad UDP length")                      \
	X(KVR_PORT_RX_BAD_UDP_SUM, rx_bad_udp_sum, COUNT, "frames", "bad UDP or ICMP checksum")    \
	X(KVR_PORT_RX_BAD_SOURCE, rx_bad_source, COUNT, "frames",                                  \
	  "source address that cannot be answered")                                                \
	X(KVR_PORT_RX_DENIED, rx_denied, COUNT, "frames", "source not in the allow-list")          \
	X(KVR_PORT_RX_SEGMENTS, rx_segments, COUNT, "frames", "in several buffers, not joinable")

#define KVR_PORT_COUNTER_LIST(X)                                                                   \
	X(KVR_PORT_RX_FRAMES, rx_frames, COUNT, "frames", "frames received")                       \
	X(KVR_PORT_RX_BYTES, rx_bytes, COUNT, "bytes", "bytes received, without CRC")              \
	KVR_PORT_VERDICT_LIST(X)                                                                   \
	X(KVR_PORT_RX_KEPT, rx_kept, COUNT, "frames",                                              \
	  "datagrams passed to the stages of this lcore")                                          \
	X(KVR_PORT_SPREAD_IN, spread_in, COUNT, "frames", "datagrams received by another lcore")   \
	X(KVR_PORT_SPREAD_OUT, spread_out, COUNT, "frames",                                        \
	  "datagrams passed to the lcore of their source")                                         \
	X(KVR_PORT_SPREAD_FULL, spread_full, COUNT, "frames",                                      \
	  "datagrams dropped: ring to the lcore of their source full")                             \
	X(KVR_PORT_TX_OFFERED, tx_offered, COUNT, "frames", "frames offered for sending")          \
	X(KVR_PORT_TX_TAKEN, tx_taken, COUNT, "frames",                                            \
	  "frames taken from other lcores for sending")                                            \
	X(KVR_PORT_TX_PASSED, tx_passed, COUNT, "frames",                                          \
	  "frames passed to an lcore with a device queue")                                         \
	X(KVR_PORT_TX_SENT, tx_sent, COUNT, "frames", "frames accepted by the device")             \
	X(KVR_PORT_TX_BYTES, tx_bytes, COUNT, "bytes", "bytes sent, without CRC")                  \
	X(KVR_PORT_TX_DROPPED, tx_dropped, COUNT, "frames", "dropped: device or ring full")        \
	X(KVR_PORT_TX_REFUSED, tx_refused, COUNT, "frames", "rejected: cannot be sent")            \
	X(KVR_PORT_TX_BUFFERED, tx_buffered, GAUGE, "frames", "waiting for the next flush")        \
	X(KVR_PORT_TX_RETRIES, tx_retries, COUNT, "bursts", "bursts retried: device full")         \
	X(KVR_PORT_ANSWERED, answered, COUNT, "frames", "ARP, ND and echo answers")                \
	X(KVR_PORT_UNANSWERED, unanswered, COUNT, "frames", "requests above answer_rate")

/** Index of each counter; verdict v is counted at KVR_PORT_RX_VERDICT + v. */
enum kvr_port_counter {
	KVR_PORT_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_PORT_COUNTERS,
	KVR_PORT_RX_VERDICT = KVR_PORT_RX_UDP
};
_Static_assert(KVR_PORT_RX_KEPT - KVR_PORT_RX_VERDICT == KVR_PKT_VERDICTS, "one each");
extern const struct kvr_stats_def kvr_port_stats_def;

/** Frames at the XDP program by result: enum kvr_xdp_count. */
extern const struct kvr_stats_def kvr_port_xdp_stats_def;
/** Index of the first counter of dropped frames; all later ones are drops, too. */
extern const unsigned int kvr_port_xdp_drops;

struct kvr_port;
struct kvr_port_queue;

/**
 * Find or probe the device, check it against @p conf, configure it and allocate its pool. The EAL
 * must be initialised. @p index is the port number of paths. Control thread.
 * @return the port; NULL with errno and one line `key: fault and allowed values` in @p err: ENODEV
 * no such device, EBUSY in use, EINVAL bad value, ERANGE beyond the driver's limit, ENOMEM, or the
 * driver's error.
 */
struct kvr_port *kvr_port_create(const char *name, const struct kvr_port_conf *conf,
				 unsigned int index, char *err, size_t errlen);

/**
 * The same for @p lcores lcores, even if the device has fewer queues. kvr_port_create() is for
 * conf->queues lcores.
 */
struct kvr_port *kvr_port_create_shared(const char *name, const struct kvr_port_conf *conf,
					unsigned int index, uint32_t lcores, char *err,
					size_t errlen);

/** Start receiving. @return 0 or -errno with a line in @p err. */
int kvr_port_start(struct kvr_port *port, char *err, size_t errlen);

/** Stop. No lcore may be inside a burst call. Buffered frames are freed and counted. */
void kvr_port_stop(struct kvr_port *port);

/**
 * Stop if needed, close the device (and remove it if create() probed it), free. NULL is allowed.
 */
void kvr_port_destroy(struct kvr_port *port);

/** Link state of a port: DPDK's, or the kernel's for kernel interfaces. */
enum kvr_port_link_state {
	KVR_PORT_UP,
	KVR_PORT_DOWN, /**< no carrier or set down; for a memif: no peer connected */
	KVR_PORT_GONE, /**< the kernel interface was removed; the port needs a restart */
};

/**
 * Check the link. Call it repeatedly; @p now in TSC cycles. The link is checked at most every 50 ms
 * (kernel interfaces: 250 ms). One thread; makes system calls.
 *
 * A memif client does not reconnect by itself when its server is gone. While the link is down,
 * bursts are disabled (nothing is received; frames to send are dropped and counted), and the device
 * is stopped and started on the EAL's interrupt thread until a server answers; this call does not
 * wait for that. When a kernel interface is gone, the kernel has detached our XDP program: its pins
 * are removed, and another router may use the name.
 * @param wait  returns when every burst call in progress has ended; NULL if no other thread makes
 * any
 * @return the state as of the last check
 */
enum kvr_port_link_state kvr_port_look_after(struct kvr_port *port, uint64_t now,
					     void (*wait)(void *arg), void *arg);

/** Facts about a port, for telemetry and start-up messages. */
struct kvr_port_info {
	const char *name;	       /* name of the section */
	const char *driver;	       /* "net_memif" */
	uint16_t ethdev;	       /* DPDK's port id */
	uint16_t lcores;	       /* lcores of the port: kvr_port_queue() */
	uint16_t queues;	       /* queue pairs of the device */
	uint16_t rx_queues, tx_queues; /* connected ones among them */
	uint16_t mtu;
	int socket; /* NUMA node, -1 unknown */
	bool link_up;
	uint32_t link_mbps;
	uint32_t link_lost; /* number of link losses seen by kvr_port_look_after() */
	bool rss;	    /* several queues, and the device distributes by UDP flow */
	bool rx_cksum_hw, tx_cksum_hw;
	bool answers4, answers6; /* ARP and echo; ND and echo */
	uint32_t mbufs, mbufs_free;
};
void kvr_port_info(struct kvr_port *port, struct kvr_port_info *out);

/**
 * Detach the XDP program that a dead router has left on the interface of @p conf, and remove its
 * pins. No effect for a device without a kernel interface, a removed interface, or one that a
 * router serves. Needs no EAL; any thread. Needs CAP_NET_ADMIN, and CAP_SYS_ADMIN to identify the
 * program's owner.
 * @return 0; -EBUSY the program is not ours or cannot be identified, -errno of the kernel: text in
 * err.
 */
int kvr_port_xdp_off(const struct kvr_port_conf *conf, char *err, size_t errlen);

/**
 * Switch the XDP program of this port: on = frames to the router, off = all frames to the kernel
 * (the router receives nothing). On from start to stop. Control thread.
 * @return 0; -ENOTSUP the port does not use our program; -errno of the kernel.
 */
int kvr_port_xdp_redirect(struct kvr_port *port, bool on);

/** @return 1 on, 0 off; negative: as above. Any thread. */
int kvr_port_xdp_redirects(const struct kvr_port *port);

/**
 * Counters of the XDP program, read from the kernel. Control thread, or one caller at a time. NULL:
 * the port does not use our program.
 */
struct kvr_stats *kvr_port_xdp_stats(struct kvr_port *port);

/**
 * A peer with these numbers of rings is about to be connected to the memif server of this process
 * with @p socket and interface @p id. Device queues without a ring are not used from now on: the
 * driver would poll and write a ring of another queue. Until kvr_port_memif_connected() bursts
 * receive and send nothing, because the driver's burst calls read the address of a ring before they
 * check for a peer. The peer must not be connected before every burst call in progress has ended.
 * EAL's interrupt thread.
 */
void kvr_port_memif_rings(const char *socket, uint32_t id, uint32_t to_server,
			  uint32_t from_server);

/** The connection attempt has ended, with or without a peer. EAL's interrupt thread. */
void kvr_port_memif_connected(const char *socket, uint32_t id);

/* ---- lcores that sleep ---- */

/**
 * Prepare kvr_port_wait_arm(): find the wake-ups of this port's lcores, if the driver has any:
 * net_af_packet, net_af_xdp, drivers with rx interrupts (kvr_port_conf::interrupts), and net_memif
 * as a server, whose rings kvr_port_memif_ring() reports. On a started port, before its lcores run
 * and before another port is created. Control thread.
 */
void kvr_port_wait_start(struct kvr_port *port);

/**
 * Location of the ring of a memif server's rx queue: the file of its memory, and the file to which
 * its peer writes. Both are duplicated.
 */
struct kvr_port_ring_at {
	int region, event;
	uint32_t offset;
};

/**
 * The peer of the memif server with @p socket and @p id is about to be connected with this ring; @p
 * at NULL: the peer is gone. @p pass waits for all lcores. EAL's interrupt thread.
 */
void kvr_port_memif_ring(const char *socket, uint32_t id, uint32_t queue,
			 const struct kvr_port_ring_at *at, void (*pass)(void *arg), void *arg);

/**
 * Arm the wake-up before the owner lcore sleeps. @p fd becomes readable when the device has
 * something; -1: nothing can arrive until the next call (no peer, or a queue that other lcores
 * read). May enter the kernel. @return 0; -EAGAIN frames are already waiting; -ENOTSUP the device
 * has no wake-up.
 */
int kvr_port_wait_arm(struct kvr_port_queue *q, int *fd);

/** Disarm after any wake-up. May enter the kernel. Owner lcore. */
void kvr_port_wait_disarm(struct kvr_port_queue *q);

struct rte_tel_data;

/** Add facts and counters to a started telemetry dictionary. */
int kvr_port_tel(struct kvr_port *port, struct rte_tel_data *d);

/** Getters. Any thread. */
unsigned int kvr_port_index(const struct kvr_port *port);
const struct kvr_local *kvr_port_local(const struct kvr_port *port);

/**
 * Apply the source prefixes (`allow`, `allow_agents`), `xdp_rate` and `xdp_burst` of @p conf while
 * the port runs; the rest of @p conf is only checked. @p wait returns when every lcore has finished
 * its current turn. Any thread but the lcores'; one call at a time, and not concurrently with
 * kvr_port_xdp_redirect().
 * @return 0; -EINVAL, or -errno of the kernel, with one line in @p err: nothing has changed.
 */
int kvr_port_tune(struct kvr_port *port, const struct kvr_port_conf *conf, void (*wait)(void *arg),
		  void *arg, char *err, size_t errlen);

/**
 * True if agents at @p ip (IPv4 mapped) may register workers here. Any lcore: kvr_port_tune() waits
 * for lcores before it writes the rules that this reads.
 */
bool kvr_port_agent_allowed(const struct kvr_port *port, const uint8_t ip[16]);
struct rte_mempool *kvr_port_pool(struct kvr_port *port);
struct kvr_stats *kvr_port_stats(struct kvr_port *port);

/** Datagrams and frames in the rings between its lcores. Any thread. */
uint32_t kvr_port_waiting(const struct kvr_port *port);

/** Queue of lcore @p i of the port; that lcore owns it from start to stop. */
struct kvr_port_queue *kvr_port_queue(struct kvr_port *port, unsigned int i);

/**
 * Receive up to @p n (at most KVR_PORT_BURST) frames and keep the datagrams for the router:
 * mbufs[i] is trimmed to the UDP payload (one segment, headers still in its headroom), pkts[i]
 * describes it. For a frame received by another lcore only path, len and verdict are set. All other
 * frames are answered or counted, and freed. Pass KVR_PORT_BURST: some vector drivers return
 * nothing for less. Owner lcore.
 * @return datagrams stored; the caller owns their mbufs. 0 does not mean that the queue was empty.
 */
uint16_t kvr_port_rx_burst(struct kvr_port_queue *q, struct rte_mbuf *mbufs[],
			   struct kvr_pkt pkts[], uint16_t n);

/**
 * Frames of any kind that the last kvr_port_rx_burst() took from the device or the ring. Owner
 * lcore.
 */
uint16_t kvr_port_rx_got(const struct kvr_port_queue *q);

/**
 * True if more may be waiting: the device or the ring filled its last burst. An lcore with both
 * reads them alternately, and the state of one tells nothing about the other. Owner lcore.
 */
bool kvr_port_rx_full(const struct kvr_port_queue *q);

/**
 * True if datagrams are distributed by source address, because some lcore has no device queue. May
 * change when a memif peer connects. Any lcore.
 */
bool kvr_port_spreads(const struct kvr_port_queue *q);

/** Empty mbuf with full headroom, or NULL. Owner lcore. */
struct rte_mbuf *kvr_port_alloc(struct kvr_port_queue *q);

/**
 * Send @p m, which holds exactly a UDP payload, along @p path: headers are written at once; the
 * frame leaves with the next flush or when the buffer is full. Takes @p m in every case. A refcnt
 * above 1 is rejected (headers are written in place). Owner lcore of @p q, a queue of the port
 * path->port.
 * @return 0; negative: rejected and counted (see kvr_path_write(); -EBUSY shared mbuf).
 */
int kvr_port_send(struct kvr_port_queue *q, const struct kvr_path *path, struct rte_mbuf *m);

/**
 * Send buffered frames to the device, or to an lcore with a device queue, together with frames
 * passed by other lcores. Frames that are not accepted after bounded retries are dropped and
 * counted. Call once per loop. @return frames that left this lcore. Owner lcore.
 */
uint16_t kvr_port_flush(struct kvr_port_queue *q);

/**
 * In a transmit callback of the device: true if these frames are a retry and have passed the
 * callback before. Owner lcore of the queue.
 */
bool kvr_port_tx_again(const struct kvr_port_queue *q);

/**
 * Resolve a peer on the same link that has not sent anything yet: ARP or neighbour discovery, one
 * request every 100 ms. Other frames that arrive meanwhile are dropped (counted). Start-up only:
 * polls for up to @p timeout_ms. @p ip as in struct kvr_path.
 * @return 0; -EHOSTUNREACH no answer; -EAFNOSUPPORT.
 */
int kvr_port_resolve(struct kvr_port_queue *q, const uint8_t ip[16], uint16_t udp_port,
		     uint32_t timeout_ms, struct kvr_path *path);

/**
 * Check the texts of @p conf and build the rules (create() sets MAC and offloads). Needs no EAL.
 * @return 0, or -EINVAL with `key: ...` in @p err.
 */
int kvr_port_rules(const struct kvr_port_conf *conf, unsigned int index,
		   struct kvr_pkt_rules *rules, char *err, size_t errlen);

/** Parse "10.0.0.1" or "fd00::1" to the 16 bytes of a path. @return family 4 or 6, or -EINVAL. */
int kvr_ip_parse(const char *text, uint8_t ip[16]);

/** Format 16 bytes of a path; returns @p buf (46 bytes suffice). */
const char *kvr_ip_text(const uint8_t ip[16], char *buf, size_t len);

#endif
