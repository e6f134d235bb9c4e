"""The real data sets, by name. With a yaml in `conf/dataset`, `dataset=NAME` chooses one; nothing else needs
to know of it."""

from harness.data import npz, ogb
from harness.data.attributed import read_attributed, read_heterophilous, shchur_set
from harness.data.planetoid import planetoid_set
from harness.data.real_set import RealSet
from harness.data.saint import read_reddit, saint_set

GRAPH2GAUSS = 'Bojchevski, Günnemann, "Deep Gaussian Embedding of Graphs", ICLR 2018.'

SETS = {
    "amazon-computers": shchur_set(
        "Computers", "Amazon", "amazon_electronics_computers.npz",
        "bffa1720ee30487a6f10f2ad57741d1a401d89a31a6a4c5c6de1ba42a1f2a0e0",
        vertices=13_752, edges=491_722, features=767, classes=10, homophily=0.777, size=3_407_870,
    ),
    "amazon-photo": shchur_set(
        "Photo", "Amazon", "amazon_electronics_photo.npz",
        "f0552bc8bcdb103c25b07cf4619bd9458af435c0728dc8366e86ffb912018c25",
        vertices=7_650, edges=238_162, features=745, classes=8, homophily=0.827, size=1_769_253,
    ),
    "amazon-products": saint_set(
        "AmazonProducts", "amazon-products", "amazon_products", "Amazon",
        vertices=1_569_960, edges=264_339_468, features=200, classes=107,
    ),
    "citeseer": planetoid_set(
        "CiteSeer",
        vertices=3_327, edges=9_104, features=3_703, classes=6, homophily=0.738,
        splits=(120, 500, 1000), size=1_005_101,
        sha256={
            "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        },
    ),
    "coauthor-cs": shchur_set(
        "CS", "Coauthor", "ms_academic_cs.npz",
        "48e79e9e838aab635ca8fff852d25cb804c0d8ed79e5bae0f1a8f2d147b2188d",
        vertices=18_333, edges=163_788, features=6_805, classes=15, homophily=0.808, size=2_796_277,
    ),
    "coauthor-physics": shchur_set(
        "Physics", "Coauthor", "ms_academic_phy.npz",
        "121a85ee9fac9859693e649d3e9f3561e3a23a9aa4d8e8951e9e3eec8e9b52ef",
        vertices=34_493, edges=495_924, features=8_415, classes=5, homophily=0.931, size=3_767_567,
    ),
    "cora": planetoid_set(
        "Cora",
        vertices=2_708, edges=10_556, features=1_433, classes=7, homophily=0.81,
        splits=(140, 500, 1000), size=550_325,
        sha256={
            "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        },
    ),
    "corafull": RealSet(
        GRAPH2GAUSS,
        folders=("cora", "CitationFull/cora", "CoraFull", "CoraFull/cora", "cora_full"),
        files=("raw/cora.npz",),
        read=read_attributed,
        vertices=19_793, edges=126_842, features=8_710, classes=70,
        own_split=False,
        url="https://github.com/abojchevski/graph2gauss/raw/master/data/",
        licence="MIT",
    ),
    "dblp": RealSet(
        GRAPH2GAUSS,
        folders=("dblp", "CitationFull/dblp"),
        files=("raw/dblp.npz",),
        read=read_attributed,
        vertices=17_716, edges=105_734, features=1_639, classes=4, homophily=0.828,
        own_split=False, size=2_370_645,
        sha256={"dblp.npz": "733c4ec2eec712a3c2b6cf9660ba9f4e1bdf4ce27869114f1de29d8e7a5a24f5"},
        url="https://github.com/abojchevski/graph2gauss/raw/master/data/",
        licence="MIT",
    ),
    "debian": RealSet(
        "Packages of Debian 12 (main, amd64, as of 2026-07), first alternatives of their Depends, Pre-Depends"
        " and Recommends; words of their short descriptions and tags; sections as classes.",
        folders=("debian",),
        files=("debian.npz",),
        read=npz.read,
        vertices=63_436, edges=549_900, features=1_122, classes=58, homophily=0.468,
        own_split=False, size=1_156_858,
        sha256={"debian.npz": "7f45287d096fc6d34a72d604b5b2785bc6b14294254762cadbc8bd9d9771bde1"},
        origin="made of Debian's package lists",
        licence="facts about packages",
    ),
    "flickr": saint_set("Flickr", vertices=89_250, edges=899_756, features=500, classes=7),
    "ogbn-arxiv": ogb.ogb_set(
        "arxiv", "arxiv", ogb.files("time", "edge", "node-feat", "node-label"), ogb.read_tables,
        vertices=169_343, edges=2_315_598, features=128, classes=40, licence="ODC-BY",
    ),
    "ogbn-papers100m": ogb.ogb_set(
        "papers100M", "papers100M-bin",
        ("raw/data.npz", "raw/node-label.npz", *ogb.files("time")), ogb.read_binary,
        vertices=111_059_956, edges=3_231_371_744, features=128, classes=172, licence="ODC-BY",
    ),
    "ogbn-products": ogb.ogb_set(
        "products", "products", ogb.files("sales_ranking", "edge", "node-feat", "node-label"),
        ogb.read_tables,
        vertices=2_449_029, edges=123_718_280, features=100, classes=47, licence="Amazon's licence",
    ),
    "ogbn-proteins": ogb.ogb_set(
        "proteins", "proteins", ogb.files("species", "edge", "edge-feat", "node-label"),
        ogb.read_edge_features,
        vertices=132_534, edges=79_122_504, features=8, classes=112, licence="CC-0",
    ),
    "pubmed": planetoid_set("PubMed", vertices=19_717, edges=88_648, features=500, classes=3),
    "reddit": RealSet(
        'Hamilton, Ying, Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017.',
        folders=("Reddit",),
        files=("raw/reddit_data.npz", "raw/reddit_graph.npz"),
        read=read_reddit,
        vertices=232_965, edges=114_615_892, features=602, classes=41,
        library="Reddit",
        origin="https://data.dgl.ai/dataset/reddit.zip",
    ),
    "reddit2": saint_set("Reddit2", vertices=232_965, edges=23_213_838, features=602, classes=41),
    "tolokers": RealSet(
        'Platonov et al., "A Critical Look at the Evaluation of GNNs under Heterophily", ICLR 2023.',
        folders=("tolokers", "HeterophilousGraphDataset/tolokers"),
        files=("raw/tolokers.npz",),
        read=read_heterophilous,
        vertices=11_758, edges=1_038_000, features=10, classes=2, homophily=0.595,
        splits=(5879, 2939, 2940), size=1_329_769,
        sha256={"tolokers.npz": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667"},
        url="https://github.com/yandex-research/heterophilous-graphs/raw/main/data/",
        licence="MIT",
    ),
    "wordnet": RealSet(
        "WordNet 3.1 (Princeton): synsets, pointers between them, words of glosses; lexicographer files:"
        " classes.",
        folders=("wordnet",),
        files=("wordnet.npz",),
        read=npz.read,
        vertices=117_791, edges=368_166, features=3_237, classes=45,
        own_split=False, size=1_717_133,
        sha256={"wordnet.npz": "1feca862ca9227b3219baface733515fd917ca216ddf47738d4d29e4a1de84c6"},
        origin="made of WordNet's database files (https://wordnet.princeton.edu)",
        licence="WordNet's",
    ),
    "yelp": saint_set("Yelp", vertices=716_847, edges=13_954_818, features=300, classes=100),
}  # fmt: skip
