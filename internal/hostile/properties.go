package hostile

// Property is one line of table 2-4.
type Property struct {
	ID      byte
	Name    string
	Section string // where it is explained first
	Form    Form
	Nonzero bool // 0 is a Protocol Error
	// In are the packets that may carry it, Will among them, when it is the server's and when it is the client's.
	In map[byte]Sender
	// RepeatsIn are the packets that may carry it more than once.
	RepeatsIn map[byte]bool
}

// PropertyUser is the identifier of the User Property.
const PropertyUser byte = 38

// Property identifiers that tests have to know.
const (
	PropertySubscriptionID     byte = 11
	PropertySessionExpiry      byte = 17
	PropertyServerKeepAlive    byte = 19
	PropertyAuthMethod         byte = 21
	PropertyAuthData           byte = 22
	PropertyReceiveMaximum     byte = 33
	PropertyTopicAlias         byte = 35
	PropertyMaximumQoS         byte = 36
	PropertyMaximumPacketSize  byte = 39
	PropertyWildcardsAvailable byte = 40
	PropertySharedAvailable    byte = 42
	propertyPayloadFormat      byte = 1
	propertyMessageExpiry      byte = 2
	propertyContentType        byte = 3
	propertyResponseTopic      byte = 8
	propertyCorrelationData    byte = 9
)

// AllProperties is table 2-4.
var AllProperties = []Property{
	{ID: propertyPayloadFormat, Name: "Payload Format Indicator", Section: "3.3.2.3.2", Form: Flag, In: inMessages},
	{ID: propertyMessageExpiry, Name: "Message Expiry Interval", Section: "3.3.2.3.3", Form: Uint32, In: inMessages},
	{ID: propertyContentType, Name: "Content Type", Section: "3.3.2.3.9", Form: Text, In: inMessages},
	{ID: propertyResponseTopic, Name: "Response Topic", Section: "3.3.2.3.5", Form: Text, In: inMessages},
	{ID: propertyCorrelationData, Name: "Correlation Data", Section: "3.3.2.3.6", Form: Binary, In: inMessages},
	{
		ID: PropertySubscriptionID, Name: "Subscription Identifier", Section: "3.3.2.3.8", Form: Varint, Nonzero: true,
		In: map[byte]Sender{PUBLISH: Server, SUBSCRIBE: Client}, RepeatsIn: map[byte]bool{PUBLISH: true},
	},
	{ID: PropertySessionExpiry, Name: "Session Expiry Interval", Section: "3.1.2.11.2", Form: Uint32, In: map[byte]Sender{CONNECT: Client, CONNACK: Server, DISCONNECT: Client}},
	{ID: 18, Name: "Assigned Client Identifier", Section: "3.2.2.3.7", Form: Text, In: inConnack},
	{ID: PropertyServerKeepAlive, Name: "Server Keep Alive", Section: "3.2.2.3.14", Form: Uint16, In: inConnack},
	{ID: PropertyAuthMethod, Name: "Authentication Method", Section: "3.1.2.11.9", Form: Text, In: inAuthentication},
	{ID: PropertyAuthData, Name: "Authentication Data", Section: "3.1.2.11.10", Form: Binary, In: inAuthentication},
	{ID: 23, Name: "Request Problem Information", Section: "3.1.2.11.7", Form: Flag, In: map[byte]Sender{CONNECT: Client}},
	{ID: 24, Name: "Will Delay Interval", Section: "3.1.3.2.2", Form: Uint32, In: map[byte]Sender{Will: Client}},
	{ID: 25, Name: "Request Response Information", Section: "3.1.2.11.6", Form: Flag, In: map[byte]Sender{CONNECT: Client}},
	{ID: 26, Name: "Response Information", Section: "3.2.2.3.15", Form: Text, In: inConnack},
	{ID: 28, Name: "Server Reference", Section: "3.2.2.3.16", Form: Text, In: map[byte]Sender{CONNACK: Server, DISCONNECT: Server}},
	{
		ID: 31, Name: "Reason String", Section: "3.2.2.3.9", Form: Text,
		In: map[byte]Sender{CONNACK: Server, PUBACK: both, PUBREC: both, PUBREL: both, PUBCOMP: both, SUBACK: Server, UNSUBACK: Server, DISCONNECT: both, AUTH: both},
	},
	{ID: PropertyReceiveMaximum, Name: "Receive Maximum", Section: "3.1.2.11.3", Form: Uint16, Nonzero: true, In: inConnections},
	{ID: 34, Name: "Topic Alias Maximum", Section: "3.1.2.11.5", Form: Uint16, In: inConnections},
	{ID: PropertyTopicAlias, Name: "Topic Alias", Section: "3.3.2.3.4", Form: Uint16, Nonzero: true, In: map[byte]Sender{PUBLISH: both}},
	{ID: PropertyMaximumQoS, Name: "Maximum QoS", Section: "3.2.2.3.4", Form: Flag, In: inConnack},
	{ID: 37, Name: "Retain Available", Section: "3.2.2.3.5", Form: Flag, In: inConnack},
	{
		ID: PropertyUser, Name: "User Property", Section: "3.1.2.11.8", Form: Pair,
		In: map[byte]Sender{
			CONNECT: Client, CONNACK: Server, PUBLISH: both, Will: Client, PUBACK: both, PUBREC: both, PUBREL: both, PUBCOMP: both,
			SUBSCRIBE: Client, SUBACK: Server, UNSUBSCRIBE: Client, UNSUBACK: Server, DISCONNECT: both, AUTH: both,
		},
		RepeatsIn: map[byte]bool{
			CONNECT: true, CONNACK: true, PUBLISH: true, Will: true, PUBACK: true, PUBREC: true, PUBREL: true, PUBCOMP: true,
			SUBSCRIBE: true, SUBACK: true, UNSUBSCRIBE: true, UNSUBACK: true, DISCONNECT: true, AUTH: true,
		},
	},
	{ID: PropertyMaximumPacketSize, Name: "Maximum Packet Size", Section: "3.1.2.11.4", Form: Uint32, Nonzero: true, In: inConnections},
	{ID: PropertyWildcardsAvailable, Name: "Wildcard Subscription Available", Section: "3.2.2.3.11", Form: Flag, In: inConnack},
	{ID: 41, Name: "Subscription Identifiers Available", Section: "3.2.2.3.12", Form: Flag, In: inConnack},
	{ID: PropertySharedAvailable, Name: "Shared Subscription Available", Section: "3.2.2.3.13", Form: Flag, In: inConnack},
}

var (
	inMessages       = map[byte]Sender{PUBLISH: both, Will: Client}
	inConnack        = map[byte]Sender{CONNACK: Server}
	inConnections    = map[byte]Sender{CONNECT: Client, CONNACK: Server}
	inAuthentication = map[byte]Sender{CONNECT: Client, CONNACK: Server, AUTH: both}
)

// belongs tells whether a property may stand at a place.
func (p *Property) belongs(place byte, from Sender) bool { return p.In[place]&from != 0 }

// repeats tells whether it may stand there more than once.
func (p *Property) repeats(place byte) bool { return p.RepeatsIn[place] }

// propertyByID returns the definition, nil where there is none.
func propertyByID(id byte) *Property {
	for i := range AllProperties {
		if AllProperties[i].ID == id {
			return &AllProperties[i]
		}
	}
	return nil
}
