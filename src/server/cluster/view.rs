//! What a node knows of its cluster, and how it tells clients: as Redis does, so that their libraries find the nodes
//! (<https://redis.io/docs/latest/commands/cluster-nodes/> and its kin).

use super::MapOfData;
use crate::config::{Config, Opt};
use holdfast_cluster::{Address, Map, Member, MemberId, Name};
use holdfast_resp::Writer;
use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

/// By what clients are told where nodes are (`cluster-preferred-endpoint-type`).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// By their addresses.
    #[default]
    Ip,
    /// By their hostnames.
    Hostname,
    /// Not at all: at the host that the client has connected to.
    Unknown,
}

impl Endpoint {
    /// What the options say.
    pub fn preferred(config: &Config) -> Endpoint {
        match &config.choice(Opt::ClusterPreferredEndpointType)[..] {
            "hostname" => Endpoint::Hostname,
            "unknown-endpoint" => Endpoint::Unknown,
            _ => Endpoint::Ip,
        }
    }

    /// A node's; empty: where the client has connected to.
    fn of(self, member: &Member) -> &str {
        let Address { host, hostname, .. } = &member.address;
        match self {
            Endpoint::Ip => host,
            Endpoint::Hostname if hostname.is_empty() => "?",
            Endpoint::Hostname => hostname,
            Endpoint::Unknown => "",
        }
    }

    /// What CLUSTER SLOTS tells of a node besides, by names.
    fn others_of(self, member: &Member) -> Vec<(&'static str, &str)> {
        let Address { host, hostname, .. } = &member.address;
        let ip = (self != Endpoint::Ip).then_some(("ip", &host[..]));
        let is_besides = self != Endpoint::Hostname && !hostname.is_empty();
        ip.into_iter().chain(is_besides.then_some(("hostname", &hostname[..]))).collect()
    }
}

/// What a node knows of its cluster.
#[derive(Clone, Default)]
pub struct View {
    /// Who it is.
    pub name: Name,
    /// Its number in the map.
    pub id: MemberId,
    /// The nodes and their slots.
    pub map: Map,
    /// By which map the data of its replica set should be.
    pub data: MapOfData,
    /// Whether a majority of those that decide is heard of.
    pub is_connected: bool,
    /// Whether keys are served; as one that follows in a replica set: whether those are that others have.
    pub is_ok: bool,
    /// The number of the one that leads the others; 0: it is not known.
    pub leader: MemberId,
    /// Counts leaders.
    pub term: u64,
    /// By what it tells clients where nodes are.
    pub endpoint: Endpoint,
    /// Frames that went to other nodes, and came from them.
    pub frames: (u64, u64),
}

impl View {
    /// Whether a slot is this node's.
    pub fn owns(&self, slot: u16) -> bool {
        self.map.owner(slot) == Some(self.id)
    }

    /// Whether a slot is this node's, or that of another one of its replica set.
    pub fn holds(&self, slot: u16) -> bool {
        let set_of = |id| self.map.members().get(&id).and_then(|member| member.seat).map(|seat| seat.set);
        let of_own_set = |owner| set_of(owner).is_some_and(|set| set_of(self.id) == Some(set));
        self.map.owner(slot).is_some_and(|owner| owner == self.id || of_own_set(owner))
    }

    /// Sends a client to another node; `word`: MOVED or ASK.
    pub fn redirection(&self, word: &str, slot: u16, to: &Member) -> String {
        format!("{word} {slot} {}:{}", self.endpoint.of(to), port(to))
    }

    /// Who has the data of which a node is a replica; `None`: it is none.
    fn master_of(&self, id: MemberId) -> Option<MemberId> {
        self.map.leader_of(id).filter(|leader| *leader != id)
    }

    /// The replicas of a node.
    fn replicas_of(&self, id: MemberId) -> impl Iterator<Item = (MemberId, &Member)> {
        let members = self.map.members().iter().map(|(&id, member)| (id, member));
        members.filter(move |(other, _)| self.master_of(*other) == Some(id))
    }

    /// The replica set of a node by forty digits, or its own name if it is of none.
    fn shard_of(&self, member: &Member) -> String {
        member.seat.map_or_else(|| member.name.to_string(), |seat| format!("{:040x}", seat.set))
    }

    /// The shard of this node.
    pub fn own_shard(&self) -> String {
        self.map.members().get(&self.id).map_or_else(|| self.name.to_string(), |me| self.shard_of(me))
    }

    fn name_of(&self, id: MemberId) -> Name {
        self.map.members().get(&id).map(|member| member.name).unwrap_or_default()
    }

    /// A node as a line of CLUSTER NODES.
    fn line(&self, id: MemberId, member: &Member) -> String {
        let (mut flags, address) = (Vec::new(), &member.address);
        if id == self.id {
            flags.push("myself");
        }
        let master = self.master_of(id);
        flags.push(if master.is_some() { "slave" } else { "master" });
        if member.has_failed {
            flags.push("fail");
        }
        let master = master.map_or_else(|| "-".into(), |master| self.name_of(master).to_string());
        let link = if id == self.id || !member.has_failed { "connected" } else { "disconnected" };
        let hostname = if address.hostname.is_empty() { "" } else { &format!(",{}", address.hostname) };
        let mut line = format!(
            "{} {}:{}@{}{hostname} {} {master} 0 0 {} {link}",
            member.name,
            address.host,
            port(member),
            address.bus_port,
            flags.join(","),
            member.epoch
        );
        for range in self.map.slots_of(id).0 {
            let _ = match (range.start(), range.end()) {
                (first, last) if first == last => write!(line, " {first}"),
                (first, last) => write!(line, " {first}-{last}"),
            };
        }
        if id == self.id {
            for (slot, way) in self.map.moves() {
                if let Some(to) = way.to.filter(|_| self.map.owner(*slot) == Some(id)) {
                    let _ = write!(line, " [{slot}->-{}]", self.name_of(to));
                }
                if let Some((_, from)) = way.from.filter(|(by, _)| *by == id) {
                    let _ = write!(line, " [{slot}-<-{}]", self.name_of(from));
                }
            }
        }
        line
    }

    /// CLUSTER NODES.
    pub fn tell_nodes(&self, out: &mut Writer) {
        let line = |(&id, member)| self.line(id, member) + "\n";
        out.verbatim("txt", self.map.members().iter().map(line).collect::<String>());
    }

    /// CLUSTER REPLICAS of a node.
    ///
    /// # Errors
    /// The node is none that has replicas, in Redis's words.
    pub fn tell_replicas(&self, of: Name, out: &mut Writer) -> Result<(), String> {
        let id = self.map.id_of(of).ok_or_else(|| format!("ERR Unknown node {of}"))?;
        if self.master_of(id).is_some() {
            return Err("ERR The specified node is not a master".into());
        }
        let lines: Vec<String> = self.replicas_of(id).map(|(id, member)| self.line(id, member)).collect();
        out.array(lines.len());
        lines.into_iter().for_each(|line| out.bulk(line));
        Ok(())
    }

    /// CLUSTER INFO.
    pub fn tell_info(&self, out: &mut Writer) {
        let (map, mut ok, mut failed) = (&self.map, 0, 0);
        let counts = map.slot_counts();
        for (owner, count) in &counts {
            match map.members().get(owner).is_some_and(|member| member.has_failed) {
                true => failed += count,
                false => ok += count,
            }
        }
        let mut text = String::new();
        let mut tell = |name: &str, value: &dyn Display| {
            write!(text, "{name}:{value}\r\n").expect("a string takes all");
        };
        tell("cluster_state", &if self.is_ok { "ok" } else { "fail" });
        tell("cluster_slots_assigned", &(ok + failed));
        tell("cluster_slots_ok", &ok);
        tell("cluster_slots_pfail", &0);
        tell("cluster_slots_fail", &failed);
        tell("cluster_known_nodes", &map.members().len());
        tell("cluster_size", &counts.len());
        tell("cluster_current_epoch", &map.epoch());
        tell("cluster_my_epoch", &map.members().get(&self.id).map_or(0, |me| me.epoch));
        tell("cluster_stats_messages_sent", &self.frames.0);
        tell("cluster_stats_messages_received", &self.frames.1);
        tell("total_cluster_links_buffer_limit_exceeded", &0);
        tell("cluster_map_version", &map.version());
        tell("cluster_majority", &if self.is_connected { "reachable" } else { "unreachable" });
        let leader =
            map.members().get(&self.leader).map(|leader| leader.name.to_string()).unwrap_or_default();
        tell("cluster_leader", &leader);
        tell("cluster_term", &self.term);
        out.verbatim("txt", text);
    }

    /// CLUSTER SLOTS: who has them first, then its replicas.
    pub fn tell_slots(&self, out: &mut Writer) {
        let mut ranges = Vec::new();
        for (&id, member) in self.map.members() {
            ranges.extend(self.map.slots_of(id).0.into_iter().map(|range| (range, id, member)));
        }
        ranges.sort_by_key(|(range, ..)| *range.start());
        out.array(ranges.len());
        for (range, id, member) in ranges {
            let replicas = self.replicas_of(id).filter(|(_, replica)| !replica.has_failed);
            let nodes: Vec<&Member> =
                [member].into_iter().chain(replicas.map(|(_, replica)| replica)).collect();
            out.array(2 + nodes.len());
            out.int((*range.start()).into());
            out.int((*range.end()).into());
            for node in nodes {
                out.array(4);
                match self.endpoint {
                    Endpoint::Unknown => out.null(),
                    told => out.bulk(told.of(node)),
                }
                out.int(port(node).into());
                out.bulk(node.name.to_string());
                let others = self.endpoint.others_of(node);
                out.map(others.len());
                others.into_iter().for_each(|(name, value)| out.key(name).bulk(value));
            }
        }
    }

    /// CLUSTER SHARDS. `offset`: where the log of this node ends; those of others it does not know.
    pub fn tell_shards(&self, offset: u64, out: &mut Writer) {
        let mut shards: BTreeMap<MemberId, Vec<(MemberId, &Member)>> = BTreeMap::new();
        for (&id, member) in self.map.members() {
            shards.entry(self.master_of(id).unwrap_or(id)).or_default().push((id, member));
        }
        out.array(shards.len());
        for (master, nodes) in shards {
            let slots = self.map.slots_of(master).0;
            out.map(2);
            out.key("slots").array(2 * slots.len());
            for range in slots {
                out.int((*range.start()).into());
                out.int((*range.end()).into());
            }
            out.key("nodes").array(nodes.len());
            for (id, node) in nodes {
                let address = &node.address;
                let further = [address.port > 0, address.tls_port > 0, !address.hostname.is_empty()];
                out.map(6 + further.into_iter().filter(|is_there| *is_there).count());
                out.key("id").bulk(node.name.to_string());
                for (name, port) in [("port", address.port), ("tls-port", address.tls_port)] {
                    if port > 0 {
                        out.key(name).int(port.into());
                    }
                }
                out.key("ip").bulk(&address.host);
                out.key("endpoint").bulk(self.endpoint.of(node));
                if !address.hostname.is_empty() {
                    out.key("hostname").bulk(&address.hostname);
                }
                out.key("role").bulk(if id == master { "master" } else { "replica" });
                out.key("replication-offset").int(if id == self.id { offset as i64 } else { 0 });
                out.key("health").bulk(if node.has_failed { "fail" } else { "online" });
            }
        }
    }

    /// CLUSTER LINKS: the ways to the other nodes, and from them.
    pub fn tell_links(&self, out: &mut Writer) {
        let others: Vec<_> = self.map.members().iter().filter(|(id, _)| **id != self.id).collect();
        out.array(2 * others.len());
        for (_, member) in others {
            for (direction, events) in [("to", "w"), ("from", "r")] {
                out.map(6);
                out.key("direction").bulk(direction);
                out.key("node").bulk(member.name.to_string());
                for name in ["create-time", "send-buffer-allocated", "send-buffer-used"] {
                    out.key(name).int(0);
                }
                out.key("events").bulk(events);
            }
        }
    }
}

/// Where clients connect.
fn port(member: &Member) -> u16 {
    if member.address.port > 0 { member.address.port } else { member.address.tls_port }
}
